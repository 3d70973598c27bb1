"""What metrics are called where people read them."""

LABELS = {
    "train_loss": "train loss",
    "test_accuracy": "test accuracy",
    "error": "distance to the optimum",
    "communication": "vectors sent",
}
