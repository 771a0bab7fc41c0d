//! Mutations of the sources.
