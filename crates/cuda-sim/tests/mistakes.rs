//! Mistakes that only another order of threads or another GPU would show: barriers that are missing, and roots that depend on which of the
//! allowed approximations they begin with.

use corrnoise::{Plan, Shard};
use corrnoise_cuda::stream;
use corrnoise_cuda_suite::cases::{self, Expected};
use corrnoise_cuda_suite::compare::{every_way, same_bits, same_bits_with};
use corrnoise_testkit::cases::every_form;
use cuda::control::{self, Approximate};

/// A committed module by name.
fn committed(name: &str) -> String {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/ptx/{}.ptx"), name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The first difference from the CPU engine, or fault, of a module with other text in the cases of these names.
fn difference(device: usize, module: &str, text: &str, names: &[&str]) -> Option<String> {
    control::mutate_clear(device);
    control::mutate_where_found(device, &committed(module), text);
    let list = if names == ["ends"] { cases::deep } else { |module: &str| cases::fast(module, false) };
    let cases = list(module).unwrap();
    let chosen: Vec<_> = cases.into_iter().filter(|case| names.contains(&case.name)).collect();
    assert!(chosen.len() >= names.len());
    chosen.into_iter().find_map(|case| {
        let expected = Expected::<f32>::new(case).unwrap();
        // A fault ends with its context: the next case has a new one.
        let stream = stream(device).unwrap();
        expected.difference(&stream).unwrap_or_else(|error| Some(error.to_string()))
    })
}

#[test]
fn every_barrier_of_rows_ahead_is_needed() {
    const DEVICE: usize = 3;
    control::set_capability(DEVICE, 75);
    // Rings of more than 64 bands share their table in parts, with two barriers between.
    let modules = [
        ("make_ring8", "bar.sync", 3, ["few rows", "long table"]),
        ("make_ring16", "bar.sync", 3, ["turns", "long table"]),
        ("make_blt4", "bar.warp.sync", 1, ["few rows", "turns"]),
        ("make_regenerate", "bar.warp.sync", 1, ["few rows", "turns"]),
    ];
    for (module, barrier, count, names) in modules {
        let text = committed(module);
        assert_eq!(difference(DEVICE, module, &text, &names), None, "{module}");
        let lines: Vec<&str> = text.lines().collect();
        let barriers: Vec<usize> = (0..lines.len()).filter(|line| lines[*line].contains(barrier)).collect();
        assert_eq!(barriers.len(), count, "{module}");
        for line in barriers {
            let mut without = lines.clone();
            without[line] = "";
            let why = difference(DEVICE, module, &without.join("\n"), &names);
            let why = why.unwrap_or_else(|| panic!("{module} needs no barrier in line {}", line + 1));
            assert!(why.contains("CUDA_ERROR"), "{module}, line {}: {why}", line + 1);
        }
    }
    control::mutate_clear(DEVICE);
}

/// A load past the end of a gradient, by up to three values that nobody stores.
#[test]
fn a_load_past_the_end_is_noticed() {
    const DEVICE: usize = 4;
    control::set_capability(DEVICE, 75);
    let text = committed("blt1");
    assert_eq!(difference(DEVICE, "blt1", &text, &["ends"]), None);
    let kernel = text.find(".entry noise_f32").expect("the kernel");
    for place in [", 3;", ", 131;", ", 259;"] {
        // The first sum of an index and this place is that of the load's bound.
        let mut lines =
            text[kernel..].lines().filter(|line| line.contains("add.s64") && line.ends_with(place));
        let line = lines.next().expect("a bound");
        let wrong = text.replacen(line, &line.replace("add.s64", "or.b64"), 1);
        let why = difference(DEVICE, "blt1", &wrong, &["ends"]).unwrap_or_else(|| panic!("place{place}"));
        assert!(why.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "place{place} {why}");
    }
    control::mutate_clear(DEVICE);
}

/// Whatever a GPU approximates, the bits are the same: at both ends of what the PTX manual allows, in every form and in every way.
#[test]
fn roots_do_not_depend_on_the_approximation() {
    const DEVICE: usize = 5;
    let shard = Shard::whole(5_000).unwrap().within(77..1_301).unwrap();
    for how in [Approximate::Highest, Approximate::Lowest] {
        control::approximate(DEVICE, how);
        let stream = stream(DEVICE).unwrap();
        for (name, form, options) in every_way(10) {
            let plan = Plan::new(10, form, 0.7313).unwrap();
            same_bits_with::<f32>(&stream, &plan, &shard, options, true, &format!("{name}, {how:?}"));
        }
    }
    control::approximate(DEVICE, Approximate::Random(0));
}

/// A root without its last step depends on the approximation, and both of its ends show that.
#[test]
fn a_root_without_its_last_step_is_noticed() {
    const DEVICE: usize = 6;
    control::set_capability(DEVICE, 75);
    let text = committed("blt1");
    let lines: Vec<&str> = text.lines().collect();
    // The step is result = residue * half + nearly.
    let is_last = |line: &usize| {
        let since = lines[..*line].iter().rev().take_while(|line| !line.contains("rsqrt.approx")).count();
        since == 10 && lines[*line].contains("fma.rn.f32")
    };
    let mut without = lines.clone();
    let lasts: Vec<(usize, String)> = (0..lines.len())
        .filter(is_last)
        .map(|line| {
            let operands = lines[line].trim().trim_start_matches("fma.rn.f32").trim_end_matches(';');
            let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
            (line, format!("mov.f32 {}, {};", operands[0], operands[3]))
        })
        .collect();
    // Eight pairs in each of three kernels.
    assert_eq!(lasts.len(), 24);
    lasts.iter().for_each(|(line, text)| without[*line] = text);
    let (_, form) = every_form(4).swap_remove(1);
    let plan = Plan::new(4, form, 0.7313).unwrap();
    let shard = Shard::whole(4_096).unwrap();
    let is_noticed = |text: &str, how| {
        control::mutate_clear(DEVICE);
        control::mutate_where_found(DEVICE, &committed("blt1"), text);
        control::approximate(DEVICE, how);
        let stream = stream(DEVICE).unwrap();
        let run = || same_bits::<f32>(&stream, &plan, &shard, true, "a root");
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    for how in [Approximate::Highest, Approximate::Lowest] {
        assert!(!is_noticed(&text, how), "{how:?}, unchanged");
        assert!(is_noticed(&without.join("\n"), how), "{how:?}");
    }
    control::mutate_clear(DEVICE);
    control::approximate(DEVICE, Approximate::Random(0));
}
