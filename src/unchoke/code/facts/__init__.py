"""What a program does, one subject a file: what runs for each sample, which loops train, where values come from and go to."""
