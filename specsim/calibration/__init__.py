"""From the measured points of a server to an engine file: closed loops without events, priced and fitted."""
