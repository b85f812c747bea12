"""The command line: each command parses its options, calls the function of that name of `import unchoke`, and shows the result.

`commands.py` holds the commands, `options.py` what makes one of a function, `showing.py` how every command ends, `main.py` the
console script. Nothing is computed here.
"""
