//! GPUs that are predicted, not measured: the kernels' budget (`kernels/BUDGET.md`) and the makers' peak rates.

use super::throughput::Kind;

/// A GPU, and what the budget says of the f32 kernels on it, in picoseconds per parameter.
pub struct Gpu {
    pub name: &'static str,
    /// Peak operations per second in bf16, without sparsity.
    pub peak_flops: f64,
    /// Peak bytes per second of its memory.
    pub bandwidth: f64,
    /// Compute time of the kernel `blt0 f32`.
    independent_ps: f64,
    /// Compute time of the kernel `blt4 f32`.
    blt4_ps: f64,
    /// Compute time of the kernel `ring f32` at 16 bands.
    ring16_ps: f64,
    /// Compute time of the kernel `regenerate f32` at 4 rows.
    regenerate4_ps: f64,
}

pub const GPUS: [Gpu; 2] = [
    // NVIDIA A100 datasheet: 312 TFLOP/s, 1,555 GB/s (40 GB).
    Gpu {
        name: "A100 40GB",
        peak_flops: 312e12,
        bandwidth: 1.555e12,
        independent_ps: 4.1,
        blt4_ps: 4.9,
        ring16_ps: 5.5,
        regenerate4_ps: 16.3,
    },
    // NVIDIA H100 datasheet, SXM: 989 TFLOP/s, 3.35 TB/s.
    Gpu {
        name: "H100 SXM",
        peak_flops: 989e12,
        bandwidth: 3.35e12,
        independent_ps: 2.8,
        blt4_ps: 3.2,
        ring16_ps: 3.7,
        regenerate4_ps: 10.9,
    },
];

impl Gpu {
    /// The least time of a step per parameter: bytes over bandwidth, or instructions, whichever is larger. `bands` are buffers of
    /// a BLT, bands of a ring, rows of a regenerated sum.
    pub fn seconds_per_param(&self, bands: usize, kind: Kind) -> f64 {
        let b = bands as f64;
        // Other sizes than the budget's: linear between independent noise and what it lists.
        let (bytes, picoseconds) = match kind {
            Kind::Blt => {
                (8.0 + 8.0 * b, self.independent_ps + (self.blt4_ps - self.independent_ps) * b / 4.0)
            }
            Kind::Ring => (
                8.0 + 4.0 * b,
                self.independent_ps + (self.ring16_ps - self.independent_ps) * (b - 1.0) / 15.0,
            ),
            Kind::Regenerate => (8.0, self.regenerate4_ps * b / 4.0),
        };
        (bytes / self.bandwidth).max(1e-12 * picoseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of a kernel's row in the checked-in budget.
    fn budget(kernel: &str) -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/BUDGET.md");
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("| {kernel} |"))).unwrap();
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn the_numbers_are_those_of_the_checked_in_budget() {
        let compute = |kernel: &str| {
            let cells = budget(kernel);
            [cells[10].parse::<f64>().unwrap(), cells[13].parse::<f64>().unwrap()]
        };
        for (i, gpu) in GPUS.iter().enumerate() {
            assert_eq!(compute("blt0 f32")[i], gpu.independent_ps);
            assert_eq!(compute("blt4 f32")[i], gpu.blt4_ps);
            assert_eq!(compute("ring f32")[i], gpu.ring16_ps);
            assert_eq!(compute("regenerate f32")[i], gpu.regenerate4_ps);
        }
        for (kernel, bytes) in
            [("blt4 f32", 8.0 + 8.0 * 4.0), ("ring f32", 8.0 + 4.0 * 16.0), ("regenerate f32", 8.0)]
        {
            assert_eq!(budget(kernel)[8].parse::<f64>().unwrap(), bytes, "{kernel}");
        }
    }
}
