"""What metrics are called where people read them."""

LABELS = {
    "train_loss": "train loss",
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "error": "distance to the optimum",
    "communication": "vectors sent",
    "server_train_loss": "train loss of the server's model",
    "server_test_accuracy": "test accuracy of the server's model",
    "round": "round",
    "bytes": "bytes sent",
    "seconds": "seconds of training",
    "eval_seconds": "seconds of evaluation",
    "tau": "tau_t",
}
