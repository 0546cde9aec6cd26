"""Rules that find portability problems in tools, requests, code and configurations, and reports of the findings."""
