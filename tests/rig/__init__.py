"""What the tests stand on: real servers, started for the tests and gone with them."""
