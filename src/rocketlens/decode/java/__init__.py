"""Java's own serialization, and Hessian."""
