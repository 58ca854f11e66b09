"""Acts: sending again, consuming, jobs, and who may."""
