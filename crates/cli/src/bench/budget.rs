//! GPUs that are predicted, not measured: the kernels' budget (`kernels/BUDGET.md`), the bytes that a step moves, and the makers' peak rates.

use super::throughput::Kind;
use corrnoise::Form;
use corrnoise::planner::{Execution, Moved};

/// What the budget says of the f32 kernels on one GPU, in picoseconds per parameter. Others follow by their multiprocessors and clock.
#[derive(Debug)]
pub struct Budget {
    multiprocessors: f64,
    clock_hz: f64,
    /// Compute time of the kernel `blt0 f32`.
    independent_ps: f64,
    /// Compute time of the kernel `blt4 f32`.
    blt4_ps: f64,
    /// Compute time of the kernel `ring f32` at 16 bands.
    ring16_ps: f64,
    /// Compute time of the kernel `regenerate f32` at 4 rows.
    regenerate4_ps: f64,
    /// Compute time of the kernel `make_regenerate` at 4 rows, which makes 11 rows for 8 steps.
    make_regenerate4_ps: f64,
}

/// The columns A100 (sm_80) and H100 (sm_90) of the budget.
static A100: Budget = Budget {
    multiprocessors: 108.0,
    clock_hz: 1.41e9,
    independent_ps: 4.3,
    blt4_ps: 5.0,
    ring16_ps: 6.1,
    regenerate4_ps: 14.3,
    make_regenerate4_ps: 6.2,
};
static H100: Budget = Budget {
    multiprocessors: 132.0,
    clock_hz: 1.75e9,
    independent_ps: 2.8,
    blt4_ps: 3.3,
    ring16_ps: 4.0,
    regenerate4_ps: 9.4,
    make_regenerate4_ps: 3.9,
};

/// A GPU, as far as a prediction needs it.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub name: String,
    /// Peak operations per second in bf16, without sparsity, if it is known.
    pub peak_flops: Option<f64>,
    /// Peak bytes per second of its memory.
    pub bandwidth: f64,
    pub multiprocessors: f64,
    pub clock_hz: f64,
    /// The column of the budget whose machine code is nearest.
    budget: &'static Budget,
}

/// Seconds per parameter and step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds {
    /// From the gradient's being ready to its having noise.
    pub critical: f64,
    /// With what is done while the gradient is computed.
    pub total: f64,
}

/// The GPUs that are always predicted.
pub fn known() -> Vec<Gpu> {
    let gpu = |name: &str, peak, bandwidth, multiprocessors, clock_hz, budget| Gpu {
        name: name.into(),
        peak_flops: Some(peak),
        bandwidth,
        multiprocessors,
        clock_hz,
        budget,
    };
    vec![
        // NVIDIA A100 datasheet: 312 TFLOP/s, 1,555 GB/s (40 GB).
        gpu("A100 40GB", 312e12, 1.555e12, 108.0, 1.41e9, &A100),
        // NVIDIA H100 datasheet, SXM: 989 TFLOP/s, 3.35 TB/s.
        gpu("H100 SXM", 989e12, 3.35e12, 132.0, 1.75e9, &H100),
        // NVIDIA HGX B200 datasheet, per GPU: 2.25 PFLOP/s without sparsity, 8 TB/s; 148 multiprocessors and a boost clock of about
        // 1.85 GHz as devices report them. Its machine code has the instructions of sm_90 (the budget's column sm_100).
        gpu("B200", 2250e12, 8e12, 148.0, 1.85e9, &H100),
    ]
}

impl Gpu {
    /// A machine of somebody's own numbers.
    pub fn new(
        name: String,
        peak_flops: Option<f64>,
        bandwidth: f64,
        multiprocessors: f64,
        clock_hz: f64,
    ) -> Gpu {
        Gpu { name, peak_flops, bandwidth, multiprocessors, clock_hz, budget: &H100 }
    }

    /// The device that is at hand. A driver that does not tell the rate of its memory leaves that of a known GPU of this name.
    pub fn of_device(name: &str, bandwidth: f64, multiprocessors: f64, clock_hz: f64) -> Gpu {
        let alike = known().into_iter().find(|gpu| name.contains(gpu.short_name()));
        let known_bandwidth = alike.as_ref().map_or(f64::NAN, |gpu| gpu.bandwidth);
        Gpu {
            name: name.to_owned(),
            peak_flops: alike.as_ref().and_then(|gpu| gpu.peak_flops),
            bandwidth: if bandwidth > 0.0 { bandwidth } else { known_bandwidth },
            multiprocessors,
            clock_hz,
            budget: alike.map_or(&H100, |gpu| gpu.budget),
        }
    }

    /// The first word of the name, as drivers spell it.
    fn short_name(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// The least time of a step per parameter: of every kernel, bytes over bandwidth or instructions, whichever is larger. `bands` are
    /// buffers of a BLT, bands of a ring, rows of a regenerated sum.
    pub fn seconds_per_param(&self, form: &Form, bands: usize, kind: Kind, execution: Execution) -> Seconds {
        let rows_ahead = execution.rows_ahead.max(1) as f64;
        let is_fused = execution.rows_ahead <= 1 && !execution.prepared;
        let compute = self.compute(bands, kind, if is_fused { 1.0 } else { rows_ahead });
        let moved = Moved::of(form, execution);
        if is_fused {
            let seconds = (moved.critical / self.bandwidth).max(compute);
            return Seconds { critical: seconds, total: seconds };
        }
        // One kernel makes rows, one adds them; what is not added was made.
        let added = Moved::of(form, Execution { prepared: true, ..execution }).critical;
        let add = added / self.bandwidth;
        let make = ((moved.total() - added) / self.bandwidth).max(compute);
        Seconds { critical: if execution.prepared { add } else { add + make }, total: add + make }
    }

    /// The compute time of one row, in seconds per parameter. Other sizes than the budget's: linear between independent noise and what it
    /// lists. A regenerated sum that is made for several steps at once makes each row once.
    fn compute(&self, bands: usize, kind: Kind, rows_ahead: f64) -> f64 {
        let (b, own) = (bands as f64, self.budget);
        let picoseconds = match kind {
            Kind::Blt => own.independent_ps + (own.blt4_ps - own.independent_ps) * b / 4.0,
            Kind::Ring => own.independent_ps + (own.ring16_ps - own.independent_ps) * (b - 1.0) / 15.0,
            // Making the rows of several sums at once takes more instructions per row.
            Kind::Regenerate if rows_ahead > 1.0 => {
                own.make_regenerate4_ps / 11.0 * 8.0 * (b + rows_ahead - 1.0) / rows_ahead
            }
            Kind::Regenerate => own.regenerate4_ps / 4.0 * b,
        };
        let slower = own.multiprocessors * own.clock_hz / (self.multiprocessors * self.clock_hz);
        1e-12 * picoseconds * slower
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corrnoise::Dtype;

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
        for (i, column) in [&A100, &H100].into_iter().enumerate() {
            assert_eq!(compute("blt0 f32")[i], column.independent_ps);
            assert_eq!(compute("blt4 f32")[i], column.blt4_ps);
            assert_eq!(compute("ring f32")[i], column.ring16_ps);
            assert_eq!(compute("regenerate f32")[i], column.regenerate4_ps);
        }
        for (kernel, bands) in [("make_regenerate, 4 rows", 4), ("make_regenerate, 32 rows", 32)] {
            for (i, gpu) in known()[..2].iter().enumerate() {
                let predicted = 1e12 * gpu.compute(bands, Kind::Regenerate, 8.0);
                let (listed, name) = (compute(kernel)[i], &gpu.name);
                assert!(
                    (0.99..1.05).contains(&(predicted / listed)),
                    "{kernel}, {name}: {predicted}, {listed}"
                );
            }
        }
        for (kernel, form) in [
            ("blt4 f32", Form::blt(&[0.2, 0.1, 0.05, 0.01], &[0.2, 0.7, 0.9, 0.99]).unwrap()),
            ("ring f32", Form::banded_toeplitz(&[1.0; 16]).unwrap()),
            ("regenerate f32", Form::regenerate(&[1.0, 0.5, 0.2, 0.1]).unwrap()),
        ] {
            let moved = Moved::of(&form, Execution::fused(Dtype::F32));
            assert_eq!(budget(kernel)[8].parse::<f64>().unwrap(), moved.total(), "{kernel}");
        }
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/BUDGET.md"));
        assert!(text.unwrap().contains("108 SMs at 1.41 GHz; H100: 3.35 TB/s, 132 SMs at 1.75 GHz"));
    }

    #[test]
    fn the_larger_of_bytes_and_instructions_bounds_every_kernel() {
        let [a100, h100, b200] = &known()[..] else { panic!("three GPUs") };
        let close =
            |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-9, "{got} {expected}");
        let ring = Form::banded_toeplitz(&[1.0; 16]).unwrap();
        let of = |gpu: &Gpu, rows_ahead, prepared| {
            let execution = Execution { gradient: Dtype::F32, rows_ahead, prepared };
            gpu.seconds_per_param(&ring, 16, Kind::Ring, execution)
        };
        close(of(a100, 1, false).critical, 72.0 / 1.555e12);
        // To make rows takes 11.5 bytes, and on an H100 longer for its instructions.
        close(of(a100, 8, false).total, 11.5 / 1.555e12 + 12.0 / 1.555e12);
        close(of(h100, 8, true).total, 1e-12 * H100.ring16_ps + 12.0 / 3.35e12);
        assert!(1e-12 * H100.ring16_ps > 11.5 / 3.35e12);
        close(of(h100, 8, true).critical, 12.0 / 3.35e12);
        // A regenerated sum of 4 rows makes 11 rows for 8 steps; without turns it makes 32.
        let sum = Form::regenerate(&[1.0, 0.5, 0.2, 0.1]).unwrap();
        let execution = Execution { gradient: Dtype::F32, rows_ahead: 8, prepared: true };
        let scale = 132.0 * 1.75 / (148.0 * 1.85);
        let seconds = b200.seconds_per_param(&sum, 4, Kind::Regenerate, execution);
        close(seconds.total, 1e-12 * H100.make_regenerate4_ps * scale + 12.0 / 8e12);
        let fused = b200.seconds_per_param(&sum, 4, Kind::Regenerate, Execution::fused(Dtype::F32));
        close(fused.critical, 1e-12 * H100.regenerate4_ps * scale);
    }
}
