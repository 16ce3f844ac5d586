"""What is asked of the operating system: whole files, processes, signals, devices, the terminal."""
