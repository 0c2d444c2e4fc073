"""What every run that can be resumed is made of: whole files, a lock, an identity, a progress bar, tensors on disk."""
