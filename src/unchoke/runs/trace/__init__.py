"""What a torch.profiler trace of anybody's run says, as plain data, as text and as one HTML page."""
