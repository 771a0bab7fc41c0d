//! `corrnoise verify --device cuda:N --report FILE` on the stand-in: the report is complete, and names a kernel that is wrong.

use corrnoise_cuda_suite::cases::modules;
use cuda::control;
use serde_json::Value;
use std::path::Path;

/// Values per check: as few as the command allows itself, since the stand-in is slow; the suite compares more.
const VALUES: u64 = 100;

/// Runs the command on a device and returns its exit code, its report and what it printed at 80 columns.
fn verify(device: usize, values: u64) -> (u8, Value, String) {
    assert!(control::is_stand_in(), "another libcuda was found before target/*/deps/libcuda.so");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu.json");
    let (device, values) = (format!("cuda:{device}"), values.to_string());
    let line = ["corrnoise", "verify", "--device", &device, "--values", &values, "--report"];
    let arguments = line.iter().map(Into::into).chain([path.clone().into()]);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let screen = corrnoise_cli::Screen { colour: false, width: 80 };
    let code = corrnoise_cli::run(arguments, &mut stdout, &mut stderr, screen);
    let text = String::from_utf8(stdout).unwrap();
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [path.as_path()], "one file and nothing beside it");
    println!("{text}");
    let report = std::fs::read_to_string(&path).unwrap();
    assert_is_anonymous(&report, folder.path());
    for line in text.lines().filter(|line| !line.contains(path.to_str().unwrap())) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    (code, serde_json::from_str(&report).unwrap(), text)
}

/// The report holds neither a path nor the names that the system has for the machine and its user.
fn assert_is_anonymous(report: &str, folder: &Path) {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = ["USER", "HOME", "HOSTNAME"].map(|name| std::env::var(name).unwrap_or_default());
    let secrets = names.into_iter().chain([host.trim().to_owned(), folder.display().to_string()]);
    for secret in secrets.filter(|secret| secret.len() > 3) {
        assert!(!report.contains(&secret), "the report names {secret:?}");
    }
}

fn checks<'a>(report: &'a Value, group: &'a str) -> Vec<&'a Value> {
    report["checks"].as_array().unwrap().iter().filter(|check| check["group"] == group).collect()
}

/// Whether a check ran a module, alone or beside another.
fn ran(check: &Value, module: &str) -> bool {
    check["kernel"].as_str().unwrap().split(" + ").any(|kernel| kernel == module)
}

/// Whether a check made rows with one kernel and added them with another.
fn is_staged(check: &Value) -> bool {
    let options = &check["options"];
    options["rows_ahead"].as_u64().unwrap() > 1 || options["prepare"] == true
}

/// The report has every kernel × type × rounds in every way, whatever the verdicts.
fn assert_complete(report: &Value) {
    assert_eq!((&report["format"], &report["version"]), (&"corrnoise GPU report".into(), &1.into()));
    let device = &report["device"];
    assert_eq!(device["name"], "corrnoise stand-in (executes PTX)");
    assert_eq!((&device["compute_capability"], &device["cuda_version"]), (&"8.0".into(), &"12.0".into()));
    assert!(device["memory_bytes"].as_u64().unwrap() > 1 << 30 && device["multiprocessors"] == 108);
    let parity = checks(report, "parity");
    for check in &parity {
        let values = check["steps"].as_u64().unwrap() * check["coordinates"].as_u64().unwrap();
        assert!(values >= report["values_per_check"].as_u64().unwrap(), "{check}");
    }
    for module in modules() {
        let is_native = module.ends_with("_80");
        let makes = module.starts_with("make_");
        let staged = makes || module.starts_with("add");
        let gradients = match is_native {
            true => &["bf16"][..],
            false if makes => &["f32", "bf16", "f16"],
            false => &["f32", "f16"],
        };
        for gradient in gradients {
            for rounds in if staged { &[12][..] } else { &[8, 12, 20] } {
                let is_it = |check: &&&Value| {
                    ran(check, &module) && check["gradient"] == *gradient && check["rounds"] == *rounds
                };
                let found: Vec<_> = parity.iter().filter(is_it).collect();
                assert!(found.iter().all(|check| is_staged(check) == staged), "{module}");
                let rows = found.iter().map(|check| check["options"]["rows_ahead"].as_u64().unwrap());
                let prepared: Vec<bool> =
                    found.iter().map(|check| check["options"]["prepare"] == true).collect();
                assert!(prepared.contains(&false), "{module}, {gradient}, {rounds} rounds");
                // Longer turns are prepared by the same stream and events.
                assert!(
                    !staged || module == "make_ring16" || prepared.contains(&true),
                    "{module}, {gradient}"
                );
                assert_eq!(module == "make_ring16", rows.min() == Some(16), "{module}");
            }
        }
        // Both have f32 gradients where rows are made ahead, and fewer values.
        for group in ["graphs", "checkpoints"] {
            let found = checks(report, group).into_iter().any(|check| ran(check, &module));
            assert!(found || is_native, "{group}, {module}");
        }
    }
    assert_complete_throughput(report["throughput"].as_array().unwrap());
}

/// Every form is timed on every type in one fused pass, and with rows ahead and prepared on two, each beside its prediction.
fn assert_complete_throughput(throughput: &[Value]) {
    assert_eq!(throughput.len(), 7 * 3 + 6 * 2 * 2);
    let of = |rows: u64, prepare: bool| {
        let is_it = |row: &&Value| {
            row["options"] == serde_json::json!({ "rows_ahead": rows, "prepare": prepare })
                && row["form"] == "BLT 4"
                && row["gradient"] == "f32"
        };
        let row = throughput.iter().find(is_it).expect("a row of every way");
        let number = |key: &str| row[key].as_f64().unwrap_or(0.0);
        let picoseconds = |key: &str| 1e12 * number(key) / number("parameters");
        let both = picoseconds("predicted_seconds_with_prepare");
        let bytes = [number("bytes_per_param"), number("background_bytes_per_param")];
        (bytes, [picoseconds("predicted_seconds"), both].map(|ps| (10.0 * ps).round() / 10.0))
    };
    // The stand-in's A100 moves 12.15 Gb/s · 5120 / 8 · 2 bytes.
    assert_eq!(of(1, false), ([40.0, 0.0], [25.7, 0.0]));
    assert_eq!(of(8, false), ([24.0, 0.0], [15.4, 0.0]));
    assert_eq!(of(8, true), ([12.0, 12.0], [7.7, 15.4]));
}

#[test]
fn the_report_of_a_right_device_is_complete() {
    let (code, report, text) = verify(0, VALUES);
    assert_eq!(
        (code, &report["passed"], &report["failed"]),
        (0, &true.into(), &serde_json::json!([])),
        "{text}"
    );
    assert_complete(&report);
    for row in report["throughput"].as_array().unwrap() {
        assert!(row["error"].is_null() && row["share_of_copy"].as_f64().unwrap() > 0.0, "{row}");
        let both = row["seconds_with_prepare"].as_f64();
        assert_eq!(both.is_some_and(|seconds| seconds > 0.0), row["options"]["prepare"] == true, "{row}");
    }
    assert!(text.contains(" 0 failed") && !text.contains("FAILED"), "{text}");
}

/// The first or the last line of an entry with some text in it.
enum Line<'a> {
    First(&'a str),
    Last(&'a str),
}

/// Text of one entry of a module that no other module has, and that begins with a line.
fn unique_text(module: &str, entry: &str, line: Line<'_>) -> String {
    let read = |module: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../cuda/ptx/{module}.ptx"));
        std::fs::read_to_string(path).unwrap()
    };
    let text = read(module);
    let start = text.find(&format!(".entry {entry}(")).unwrap();
    let kernel = &text[start..start + text[start..].find("\n}").unwrap()];
    let others: Vec<String> =
        modules().iter().filter(|other| *other != module).map(|other| read(other)).collect();
    let is_unique =
        |part: &&str| text.matches(part).count() == 1 && !others.iter().any(|other| other.contains(*part));
    let at = match line {
        Line::First(with) => kernel.find(with),
        Line::Last(with) => kernel.rfind(with),
    };
    let rest = &kernel[kernel[..at.expect("such a line")].rfind('\n').unwrap() + 1..];
    // As many lines as it takes.
    let ends = (0..).map(|power| 1 << power).map(|lines| rest.match_indices('\n').nth(lines - 1));
    let mut parts = ends.take_while(Option::is_some).flatten().map(|(end, _)| &rest[..end]);
    parts.find(is_unique).expect("a text of its own").to_owned()
}

/// Swaps the first two values that a line of a module loads or stores.
fn swap_lanes(device: usize, module: &str, entry: &str, line: Line<'_>) {
    let text = unique_text(module, entry, line);
    let (head, rest) = text.split_once('{').expect("a list");
    let (list, tail) = rest.split_once('}').expect("the end of a list");
    let mut names: Vec<&str> = list.split(", ").collect();
    names.swap(0, 1);
    control::mutate_where_found(device, &text, &format!("{head}{{{}}}{tail}", names.join(", ")));
}

/// Lets the first store of an entry of a module have an address that is not aligned.
fn misalign(device: usize, module: &str, entry: &str) {
    let text = unique_text(module, entry, Line::First("st.global.v4.f32"));
    let (head, rest) = text.split_once(']').unwrap();
    let base = head.rsplit_once('+').map_or(head, |(base, _)| base);
    control::mutate_where_found(device, &text, &format!("{base}+4]{rest}"));
}

#[test]
fn wrong_kernels_and_faults_are_named_and_the_others_go_on() {
    let device = 1;
    swap_lanes(device, "blt4", "noise_f32", Line::First("st.global.v4.f32"));
    // Rows are stored after the buffers.
    swap_lanes(device, "make_blt4", "make", Line::Last("st.global.v4.f32"));
    swap_lanes(device, "add", "noise_f16", Line::First("ld.global.v4.f32"));
    swap_lanes(device, "add_80", "noise_bf16", Line::First("ld.global.v4.f32"));
    misalign(device, "regenerate", "noise_f32");
    let (code, report, text) = verify(device, VALUES);
    control::mutate_clear(device);
    assert_eq!((code, &report["passed"]), (1, &false.into()));
    assert_complete(&report);
    for check in report["checks"].as_array().unwrap() {
        let (kernel, detail) = (check["kernel"].as_str().unwrap(), check["detail"].as_str().unwrap());
        let expected: &[&str] = match kernel {
            "blt4" if check["gradient"] == "f32" => &["on the CPU", "the state"],
            "make_blt4 + add" => &["on the CPU", "the state"],
            _ if kernel.ends_with(" + add_80") => &["on the CPU"],
            _ if kernel.ends_with(" + add") && check["gradient"] == "f16" => &["on the CPU"],
            "regenerate" if check["gradient"] == "f32" => &["CUDA_ERROR"],
            // A kernel that faults takes its context with it. The checks after it have a fresh one, but a captured graph keeps the old one.
            _ if check["group"] == "graphs" && kernel.contains("regenerate") => continue,
            _ => &[],
        };
        assert_eq!(check["verdict"] == "failed", !expected.is_empty(), "{check}");
        assert!(expected.is_empty() || expected.iter().any(|words| detail.contains(words)), "{check}");
    }
    let failed: Vec<&str> =
        report["failed"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in [
        "parity: BLT 4 (kernel blt4), f32 gradients, 12 rounds",
        "parity: BLT 4 (kernel make_blt4 + add), f32 gradients, 12 rounds, 8 rows ahead",
        "graphs: BLT 4 (kernel make_blt4 + add), f32 gradients, 12 rounds, 8 rows ahead, prepared",
        "parity: ring 16 (kernel make_ring16 + add), f16 gradients, 12 rounds, 16 rows ahead",
        "parity: ring 2 (kernel make_ring8 + add_80), bf16 gradients, 12 rounds, 8 rows ahead, prepared",
        "parity: regenerate 4 (kernel regenerate), f32 gradients, 20 rounds",
        "throughput: regenerate 4, f32 gradients",
    ] {
        assert!(failed.contains(&name), "{name}: {failed:?}");
    }
    for row in report["throughput"].as_array().unwrap() {
        let faults = row["form"].as_str().unwrap().starts_with("regenerate")
            && row["gradient"] == "f32"
            && !is_staged(row);
        assert_eq!(row["error"].is_string(), faults, "{row}");
    }
    assert!(text.contains("FAILED  BLT 4 ") && text.contains("(kernel make_blt1 + add_80)"), "{text}");
}

#[test]
fn a_device_that_cannot_be_used_is_one_line() {
    for device in ["cuda:7", "cuda:8"] {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let line = ["corrnoise", "verify", "--device", device].map(Into::into);
        let code = corrnoise_cli::run(line, &mut stdout, &mut stderr, corrnoise_cli::Screen::PLAIN);
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!((code, stderr.lines().count(), stdout.len()), (2, 1, 0), "{stderr}");
    }
}
