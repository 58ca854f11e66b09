"""Decoders of Java serialization and Hessian."""
