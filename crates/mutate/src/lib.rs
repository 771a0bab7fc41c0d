//! Mutation testing of the CUDA kernels: which mistakes would the tests not notice?
//!
//! A mutant is a module of `crates/cuda/ptx/` with one instruction changed, or the PTX of sources with one token changed. The real
//! host code runs it on the stand-in for libcuda, and every result (gradients, what lies beside them, state, overflow flag,
//! step counter) is compared with the CPU engine's, bit for bit. A mutant that differs or faults is *killed*.
//!
//! | file | what |
//! |---|---|
//! | `ptx` | a module's text: kernels, instructions, which registers are live |
//! | `operators` | what can be changed in an instruction |
//! | `draw` | which mutants a seed stands for |
//! | `source` | the same for `kernels/*.cu` and `*.cuh`, through the pinned compiler |
//! | `coverage` | which instructions the small cases execute |
//! | `judge` | runs a mutant until the first difference |
//! | `wide` | launches with numbers that no test has memory or time for |
//! | `excused` | the survivors that no case can kill, as classes with a reason each |
//! | `report` | the table |
//!
//! A mutant runs on the cases of `corrnoise_cuda_suite::cases`: small shapes that reach every instruction, then millions of values.
//!
//! `cargo run -p corrnoise-mutate -- --count 300` is the long run; `tests/sample.rs` is the short one.

pub mod coverage;
pub mod draw;
pub mod excused;
pub mod judge;
pub mod operators;
pub mod ptx;
pub mod report;
pub mod run;
pub mod source;
mod wide;
