"""Responses and conversations that clients of OpenAI Responses store, over every upstream wire."""
