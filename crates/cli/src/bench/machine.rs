//! This machine: noise, memory and a matrix multiply.

use super::args::BenchArgs;
use super::throughput::{self, Measured};
use crate::failure::Result;
use crate::parse::Device;
use crate::table::counted;
use corrnoise::{CpuOptions, Isa};
use corrnoise_numerics::{Matrix, product_into};
use serde::Serialize;
use std::time::Instant;

/// What was measured, and on what.
#[derive(Serialize)]
pub struct Machine {
    pub device: String,
    pub threads: usize,
    /// Operations per second of a matrix multiply in f32; unknown for a GPU that has no entry here.
    pub flops_per_second: Option<f64>,
    /// Bytes per second that memory moved at best: in plain passes through the forms' rows (on a GPU, in copies), or in a step.
    pub bytes_per_second: f64,
    pub forms: Vec<Measured>,
}

/// Measures this machine's processors.
pub fn measure(args: &BenchArgs) -> Result<Machine> {
    let steps = args.steps.unwrap_or(if args.quick { 3 } else { 7 }) as usize;
    let (threads, options) = match args.device {
        Device::Scalar => (1, CpuOptions { threads: 1, isa: Isa::Scalar, ..CpuOptions::default() }),
        _ => (std::thread::available_parallelism().map_or(1, usize::from), CpuOptions::default()),
    };
    let engine = if args.device == Device::Scalar { "scalar, " } else { "" };
    let device = format!("this CPU, {engine}{}", counted(threads as u64, "thread"));
    let (forms, bytes_per_second) = throughput::measure(steps, args.quick, threads, options)?;
    let size = if args.quick { 512 } else { 1024 };
    let flops_per_second = Some(matmul_rate(size, steps.max(3), threads)?);
    Ok(Machine { device, threads, flops_per_second, bytes_per_second, forms })
}

/// Operations per second of products of square matrices, one per thread at a time.
fn matmul_rate(size: usize, runs: usize, threads: usize) -> Result<f64> {
    let work = || {
        let left = Matrix::from_fn(size, size, |i, j| ((7 * i + j) % 13) as f32 - 6.0);
        let right = Matrix::from_fn(size, size, |i, j| ((i + 5 * j) % 11) as f32 - 5.0);
        let mut product = Matrix::<f32>::zeros(size, size);
        let mut multiply = || {
            product_into(&mut product, left.view(), right.view());
            std::hint::black_box(&product);
        };
        multiply();
        let start = Instant::now();
        (0..runs).for_each(|_| multiply());
        start.elapsed().as_secs_f64()
    };
    let seconds: Vec<f64> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().filter_map(|thread| thread.join().ok()).chain([own]).collect()
    });
    let operations = 2.0 * (size as f64).powi(3) * runs as f64;
    Ok(seconds.iter().map(|seconds| operations / seconds).sum())
}
