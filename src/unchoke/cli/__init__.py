"""The command line: each command parses its options, calls the function of that name of `import unchoke`, and shows the result.

`main.py` and the `*_commands.py` files hold the commands, `options.py` the options, `showing.py` how every command ends. Nothing
is computed here.
"""
