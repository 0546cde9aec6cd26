"""Endpoints besides chats: requests and answers are passed on while they arrive."""
