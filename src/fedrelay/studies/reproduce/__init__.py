"""The tables and figures of the papers, each by one command: what a paper prints beside what comes out here."""
