"""One session on an H200: attention to trees, experts, a head, and whole runs, beside what is composed or simulated."""
