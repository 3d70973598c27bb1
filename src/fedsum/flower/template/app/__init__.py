"""A federation that trains MNIST with fedsum."""
