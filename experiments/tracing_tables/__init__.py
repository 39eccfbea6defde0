"""Tables that show what tracing covers and how exact it is."""
