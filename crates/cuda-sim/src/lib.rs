//! A stand-in for NVIDIA's `libcuda.so` that executes PTX on the host, so that CUDA host code and the committed kernels are
//! tested bit for bit on a machine without a GPU.
//!
//! | part | what it does |
//! |---|---|
//! | [`driver`] | the exported `cu…` functions: devices, contexts, streams, events, memory, modules, launches, graphs |
//! | `ptx` | text to typed operations; whatever is not known exactly is refused at load |
//! | `exec` | runs those operations, one warp of 32 lanes at a time |
//! | `memory` | device memory behind fake addresses, every access checked |
//! | [`control`] | what a test may ask of the `libcuda.so` that its process has loaded |
//!
//! # Guarantees
//!
//! - Every access of a kernel is inside one live allocation, aligned to its size, and reads only bytes that were written.
//! - Two threads of one launch never touch the same bytes unless both only read, or both use atomics, or a barrier of their block
//!   or warp comes between; in shared memory too, whose words are read only after a thread of the block has written them.
//! - All threads of a block come to each of its barriers, all living lanes that it names to a `bar.warp.sync`.
//! - Two commands of different streams, or of branches of a graph, never use the same 512 bytes unless both only read, or stream
//!   order, events or waits of the host say which comes first.
//! - Pinned host memory neither changes nor is freed before the host has waited for the copies from it.
//! - No memory is freed with a secret that a test has named ([`control::secrets`]).
//! - An approximate instruction returns any result that its documented error allows ([`control::approximate`]).
//! - Float arithmetic is IEEE with subnormals, to the nearest, ties to even, or (`.rz`) towards zero; a NaN result is `0x7fffffff`.
//!
//! A test can leave out a record or a wait, or let a call fail ([`control::spoil`]), and ask what the checks noticed ([`control::noticed`]).
//!
//! A launch that breaks one of the first three fails with a text that names the kernel, block, thread and line, and its context
//! stays faulted until it is destroyed, as on hardware.
//!
//! # What it is not
//!
//! It has no dynamic shared memory, local memory, shuffles, textures, double precision arithmetic or device functions. Streams
//! run each command when it is submitted, which is one valid order; [`control::delay`] makes streams with a priority wait until
//! something waits for them, which is another. Functions without a stream, such as `cuMemcpyDtoH`, count as waits for everything.

pub mod control;
pub mod driver;
mod exec;
mod memory;
mod ptx;
mod status;
mod traffic;

pub use status::Status;
pub use traffic::Traffic;
