//! Bytes that kernels move on the stand-in, counted while they execute, against the planner's table.

use corrnoise::backend::Backend;
use corrnoise::form::Kernel;
use corrnoise::planner::{Execution, Moved};
use corrnoise::{Dtype, Element, Form, Mechanism, Plan, Shard};
use corrnoise_cuda::{CudaOptions, OnCuda, stream};
use corrnoise_cuda_suite::compare::{Onto, key};
use corrnoise_cuda_suite::values::DeviceValues;
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use cuda::control;
use half::{bf16, f16};

/// Bytes of values since the counts were reset, which move 8 and 16 bytes at a time.
fn values(device: usize) -> u64 {
    let traffic = control::traffic(device);
    let wide = 16 * (traffic.loads_of(16) + traffic.stores_of(16));
    // A gradient of 16 bits is stored 8 bytes at a time, and loaded as often.
    wide + 2 * 8 * traffic.stores_of(8)
}

/// Bytes per parameter that one step of a fused kernel moves on whole tiles, in accesses of 8 and 16 bytes: those of values. Tables and
/// arguments are read in other widths.
fn counted<E: Element>(device: usize, form: &Form) -> f64 {
    const LEN: u64 = 512 * 8;
    let stream = stream(device).unwrap();
    let plan = Plan::new(64, form.clone(), 0.75).unwrap();
    let options = CudaOptions { rows_ahead: Some(1), ..CudaOptions::default() };
    let shard = Shard::whole(LEN).unwrap();
    let mut noise = Mechanism::cuda_with(&plan, key(), shard, &stream, options).unwrap();
    let mut gradient = DeviceValues::new(&stream, &Onto::Values.gradient::<E>(LEN)).unwrap();
    // Counted once every slot of the state is in use and the list of segments is on the device.
    for _ in 0..20 {
        noise.run_step(&[gradient.gradient()]).unwrap();
    }
    control::reset_traffic(device);
    noise.run_step(&[gradient.gradient()]).unwrap();
    values(device) as f64 / LEN as f64
}

#[test]
fn the_planner_counts_the_bytes_that_fused_kernels_move() {
    let device = 0;
    let blts = every_form(64).into_iter().take(9);
    let rings = [2, 5, 16]
        .map(|bands| (format!("ring {bands}"), Form::banded_toeplitz(&square_root_coefs(bands)).unwrap()));
    for (name, form) in blts.chain(rings) {
        let moved = |gradient| Moved::of(&form, Execution::fused(gradient)).total();
        assert_eq!(counted::<f32>(device, &form), moved(Dtype::F32), "{name}");
        assert_eq!(counted::<bf16>(device, &form), moved(Dtype::Bf16), "{name}");
        assert_eq!(counted::<f16>(device, &form), moved(Dtype::F16), "{name}");
    }
}

/// Bytes per parameter and step of `add` and of `make`, over one turn of all tiles, when a step's rows are prepared.
fn counted_ahead<E: Element>(device: usize, form: &Form, rows: usize) -> Moved {
    let len = 512 * rows as u64;
    let stream = stream(device).unwrap();
    // Counted once every slot of the state is in use, and before rows are left out because the plan ends.
    let filled = (form.num_slots() + 1).max(2 * rows);
    let plan = Plan::new((filled + 2 * rows) as u64, form.clone(), 0.75).unwrap();
    let options = CudaOptions { rows_ahead: Some(rows), prepare: true, ..CudaOptions::default() };
    let mut noise = Mechanism::cuda_with(&plan, key(), Shard::whole(len).unwrap(), &stream, options).unwrap();
    let mut gradient = DeviceValues::new(&stream, &Onto::Values.gradient::<E>(len)).unwrap();
    for _ in 0..filled {
        noise.run_step(&[gradient.gradient()]).unwrap();
    }
    let (mut made, mut added) = (0, 0);
    for _ in 0..rows {
        control::reset_traffic(device);
        noise.prepare().unwrap();
        // To read state, even none of it, is to wait for the stream that makes rows.
        noise.backend().read_state(0, 0, &mut []).unwrap();
        let traffic = control::traffic(device);
        let (loaded, stored) = (16 * traffic.loads_of(16), 16 * traffic.stores_of(16));
        made += match form.kernel() {
            // It loads nothing but its table, which is sent word by word before.
            Kernel::Regenerate(_) => stored,
            // A block loads its table once, in quads. All blocks have the same one: caches hold it.
            Kernel::Ring(ring) => {
                let pitch = if rows <= 8 { 8 } else { 16 };
                let table = 4 * pitch * (ring.num_slots() + pitch);
                loaded - table as u64 + stored
            }
            Kernel::Blt(_) => loaded + stored,
        };
        control::reset_traffic(device);
        noise.run_step(&[gradient.gradient()]).unwrap();
        assert_eq!(control::traffic(device).launches, 1, "a step that was prepared only adds");
        added += values(device);
    }
    let per_param = |bytes: u64| bytes as f64 / (len * rows as u64) as f64;
    Moved { critical: per_param(added), background: per_param(made) }
}

#[test]
fn the_planner_counts_the_bytes_of_rows_made_ahead() {
    let device = 1;
    let ring = |bands| Form::banded_toeplitz(&square_root_coefs(bands)).unwrap();
    let (_, blt4) = every_form(64).swap_remove(4);
    let sum = Form::regenerate(&inverse_square_root_coefs(5)).unwrap();
    for (name, form, rows, most) in [
        ("ring 16", ring(16), 8, 24.0),
        ("ring 64", ring(64), 16, 32.0),
        ("BLT 4", blt4, 8, 24.0),
        ("sum", sum, 8, 16.0),
    ] {
        let moved = |gradient| Moved::of(&form, Execution { gradient, rows_ahead: rows, prepared: true });
        let counted = counted_ahead::<f32>(device, &form, rows);
        assert_eq!(counted, moved(Dtype::F32), "{name}");
        assert!(counted.critical == 12.0 && counted.total() <= most, "{name}: {counted:?}");
        assert_eq!(counted_ahead::<bf16>(device, &form, rows), moved(Dtype::Bf16), "{name}");
        assert_eq!(counted_ahead::<f16>(device, &form, rows), moved(Dtype::F16), "{name}");
    }
}

/// What the planner takes for a GPU's number of rows is what the engine makes, where there is room.
#[test]
fn the_planner_knows_how_many_rows_a_gpu_makes() {
    let sum = |terms| (format!("sum {terms}"), Form::regenerate(&inverse_square_root_coefs(terms)).unwrap());
    let ring = |bands| (format!("ring {bands}"), Form::banded_toeplitz(&square_root_coefs(bands)).unwrap());
    let long = [sum(3), sum(4), ring(8), ring(9), ring(47), ring(48), ring(64)];
    for (name, form) in every_form(12).into_iter().chain(long) {
        let rows = CudaOptions::default().rows_ahead_of(&form, 1 << 24, 1 << 40).unwrap();
        assert_eq!(Execution::rows_ahead_on_gpu(&form), rows, "{name}");
    }
}
