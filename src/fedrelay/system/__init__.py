"""What is asked of the operating system: files that are whole or not there, processes, signals, the terminal."""
