"""One module per noun or command of the command line."""
