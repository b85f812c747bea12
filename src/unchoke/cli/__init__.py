"""The command line: parse, call one library function, show what came back."""
