//! The subcommand `generate` writes the bytes of a mechanism, whatever the device, the coordinates and the first step.

mod common;

use common::{KEY, Plans, json, run};
use corrnoise::chacha::ChaCha;
use corrnoise::{Incarnations, Key, Mechanism, Plan, Shard, reference};
use std::path::Path;

/// The shape and the values of a .npy file of f32.
fn read_npy(path: &Path) -> ((usize, usize), Vec<f32>) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..end]).unwrap();
    assert!(header.contains("'descr': '<f4'") && header.contains("'fortran_order': False"), "{header}");
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let (rows, columns) = shape.split_once(", ").unwrap();
    let values: Vec<f32> =
        bytes[end..].chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    let shape = (rows.parse().unwrap(), columns.parse().unwrap());
    assert_eq!(values.len(), shape.0 * shape.1);
    (shape, values)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn generate(plans: &Plans, plan: &str, more: &[&str]) -> Vec<f32> {
    let (plan, out) = (plans.text(plan), plans.text("noise.npy"));
    let line = ["generate", "--plan", &plan, "--key-hex", KEY, "--out", &out];
    json(&[&line[..], more].concat());
    read_npy(Path::new(&out)).1
}

#[test]
fn it_says_that_the_noise_is_that_before_the_grid() {
    let plans = Plans::new();
    let (plan, out) = (plans.text("regenerate.json"), plans.text("noise.npy"));
    let line =
        ["generate", "--plan", &plan, "--key-hex", KEY, "--steps", "0..2", "--coords", "0..9", "--out"];
    let (status, text, _) = run(&[&line[..], &[&out]].concat());
    assert!(status == 0 && text.contains("noise before the output grid of steps 0..2"), "{text}");
}

#[test]
fn rows_are_those_of_a_mechanism() {
    let plans = Plans::new();
    for (name, _) in common::forms() {
        let name = format!("{name}.json");
        let plan = Plan::load(plans.path(&name)).unwrap();
        let key = Key::from_hex(KEY, "run 7").unwrap();
        let cipher = ChaCha::new(key.run_key(plan.fingerprint()).bytes(), plan.rounds());
        let mut mechanism = Mechanism::cpu(&plan, key, Shard::whole(2000).unwrap()).unwrap();
        // Column by column, from the reference; the rows are the noise before the output grid.
        let first = Incarnations::first();
        let column = |coord| {
            reference::trajectory(std::slice::from_ref(&cipher), plan.form(), &first, coord, plan.num_steps())
                .unwrap()
        };
        let columns: Vec<Vec<f32>> = (0..2000).map(column).collect();
        let row =
            |t: usize| columns.iter().map(|column| plan.scale(t as u64) * column[t]).collect::<Vec<f32>>();
        let expected: Vec<Vec<f32>> = (0..plan.num_steps() as usize).map(row).collect();
        for noise in &expected {
            let mut released = vec![0.0_f32; 2000];
            mechanism.add_to(&mut released).unwrap();
            let unit = plan.grid(0).unit;
            for (released, noise) in released.iter().zip(noise) {
                // Half a unit by rounding, an eighth by the dither.
                assert!(
                    (released - noise).abs() <= 0.63 * unit && (released / unit).fract() == 0.0,
                    "{name}"
                );
            }
        }
        for device in ["cpu", "scalar"] {
            let base = ["--device", device, "--run-id", "run 7"];
            let all =
                generate(&plans, &name, &[&base[..], &["--steps", "0..30", "--coords", "0..2000"]].concat());
            assert_eq!(bits(&all), bits(&expected.concat()), "{name}, {device}");
            // The range begins in the middle of the plan, and of a tile.
            let more = [&base[..], &["--steps", "17..24", "--coords", "333..1501", "--dim", "2000"]].concat();
            let part = generate(&plans, &name, &more);
            let rows: Vec<f32> = expected[17..24].iter().flat_map(|row| row[333..1501].to_vec()).collect();
            assert_eq!(bits(&part), bits(&rows), "{name}, {device}, part");
        }
    }
}

#[test]
fn rows_of_z_are_what_noise_is_made_of() {
    let plans = Plans::new();
    let range = ["--steps", "0..30", "--coords", "100..400"];
    // Z belongs to the plan's key, so noise is C⁻¹ times it: here for a banded inverse, by hand.
    let z = generate(&plans, "regenerate.json", &[&range[..], &["--iid"]].concat());
    let noise = generate(&plans, "regenerate.json", &range);
    let coefs = corrnoise::planner::strategy::series::binomial(0.5, 5);
    for t in 0..30 {
        for c in 0..300 {
            let sum: f64 = (0..=t.min(4)).map(|age| coefs[age] * f64::from(z[(t - age) * 300 + c])).sum();
            let got = f64::from(noise[t * 300 + c]);
            assert!((got - 0.5 * sum).abs() < 1e-6, "step {t}, coordinate {c}: {got} {sum}");
        }
    }
    let scalar =
        generate(&plans, "regenerate.json", &[&range[..], &["--iid", "--device", "scalar"]].concat());
    assert_eq!(bits(&z), bits(&scalar));
    let late = generate(&plans, "regenerate.json", &["--iid", "--steps", "12..13", "--coords", "100..400"]);
    assert_eq!(bits(&late), bits(&z[12 * 300..13 * 300]));
}

#[test]
fn keys_come_from_files_or_nowhere_and_are_never_printed() {
    let plans = Plans::new();
    let (plan, out) = (plans.text("blt.json"), plans.text("noise.npy"));
    let line = ["generate", "--plan", &plan, "--steps", "0..2", "--coords", "0..50", "--out", &out];
    let from_hex = generate(&plans, "blt.json", &["--steps", "0..2", "--coords", "0..50"]);
    let file = plans.text("noise.key");
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    let report = json(&[&line[..], &["--key-file", &file]].concat());
    assert_eq!(bits(&read_npy(Path::new(&out)).1), bits(&from_hex));
    common::assert_keys(
        &report,
        &["out", "dtype", "shape", "steps", "coords", "iid", "device", "plan_fingerprint", "key_commitment"],
    );
    assert_eq!(report["shape"], serde_json::json!([2, 50]));
    assert!(!report.to_string().contains(&KEY[..16]));
    let mut fresh = Vec::new();
    for _ in 0..2 {
        let (code, stdout, stderr) = run(&line);
        assert_eq!((code, stdout.lines().count(), stderr.lines().count()), (0, 1, 1));
        assert!(stderr.contains("drawn afresh"), "{stderr}");
        fresh.push(read_npy(Path::new(&out)).1);
    }
    assert_ne!(bits(&fresh[0]), bits(&fresh[1]));
    assert_ne!(bits(&fresh[0]), bits(&from_hex));
    let named =
        generate(&plans, "blt.json", &["--steps", "0..2", "--coords", "0..50", "--run-id", "another"]);
    assert_ne!(bits(&named), bits(&from_hex));
}

/// Only the owner may read rows, which are noise that gradients may have been released with; plans and pictures are no secret.
#[cfg(unix)]
#[test]
fn noise_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let plans = Plans::new();
    let mode = |name: &str| std::fs::metadata(plans.path(name)).unwrap().permissions().mode() & 0o777;
    std::fs::write(plans.path("usual"), b"").unwrap();
    // An old file of that name does not make the new one readable by more people.
    std::fs::write(plans.path("noise.npy"), b"").unwrap();
    generate(&plans, "blt.json", &["--steps", "0..2", "--coords", "0..10"]);
    assert_eq!(mode("noise.npy"), 0o600);
    json(&["plan", "--steps", "8", "--mu", "1", "--out", &plans.text("made.json")]);
    assert_eq!(mode("made.json"), mode("usual"));
}
