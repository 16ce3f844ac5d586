"""Every attack against every defence, method by method: many small runs of one file, and one page."""
