//! Dense linear algebra and convolutions in f64 for the planner.
//!
//! Everything runs on the caller's thread and uses the vector instructions of the processor. Results are the same on every processor
//! with fused multiply-adds, whatever the length of its vectors.

mod cholesky;
mod convolve;
mod eigen;
mod kernel;
mod matrix;
mod mixture;
mod product;
mod random;
mod reflect;
mod rotations;
mod secular;
mod singular;
mod tridiagonal;
mod vector;

pub use cholesky::Cholesky;
pub use convolve::convolve;
pub use eigen::Eigen;
pub use kernel::Number;
pub use matrix::{Matrix, View};
pub use mixture::{
    BLOCK, LANES, Lane, Sparse, blend_blocks, density_times_polynomials, sparse_times_lanes,
    sparse_times_numbers,
};
pub use product::{gram, product, product_into};
pub use random::{exponentials, normals};
pub use singular::singular_values;
