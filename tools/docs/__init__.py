"""The pages that are made from the code, the navigation, llms.txt, and the check of the built site."""
