//! No key is left in memory that a core dump would hold: not while a mechanism exists, and nowhere after it was freed.
//!
//! A child process makes mechanisms and waits between steps; this process reads its memory as a dump would. All bytes on pages that
//! dumps exclude count as secret, and are looked for everywhere else: as they are, by halves, and spread over vector registers.
#![cfg(target_os = "linux")]

use corrnoise::{CpuOptions, Form, Isa, Key, Mechanism, Plan, Resume, Sampler, Sampling, Shard};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::process::{Child, Command, Stdio};

const FOLDER: &str = "CORRNOISE_SECRETS_FOLDER";
const DIM: u64 = 300_000;

/// Runs in the child only: makes keys and noise in every way, and says when it is between steps and when all is freed.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let sampling = Sampling::Poisson { dataset_size: 1000, sampling_prob: 0.1 };
    let ring: Vec<f64> = (0..12).map(|i| 1.0 / (1.0 + f64::from(i))).collect();
    let forms = [
        Form::independent(),
        Form::blt(&[0.3, 0.1], &[0.9, 0.5]).unwrap(),
        Form::banded_toeplitz(&ring).unwrap(),
        Form::regenerate(&[1.0, 0.5, 0.25]).unwrap(),
    ];
    let mut gradient = vec![0.0_f32; DIM as usize];
    let mut kept = Vec::new();
    for (i, form) in forms.into_iter().enumerate() {
        let plan = Plan::new(50, form, 1.0).unwrap();
        for isa in [Isa::Auto, Isa::Scalar] {
            let file = format!("{folder}/key-{i}-{isa:?}");
            drop(Key::create_file(&file).unwrap());
            for key in [Key::from_os().unwrap(), Key::from_file(&file, "").unwrap()] {
                let options = CpuOptions { isa, ..CpuOptions::default() };
                let shard = Shard::whole(DIM).unwrap();
                let mut noise = Mechanism::cpu_with(&plan, key.duplicate(), shard.clone(), options).unwrap();
                (0..4).for_each(|_| noise.add_to(&mut gradient).unwrap());
                let saved = format!("{folder}/saved");
                noise.save(&saved).unwrap();
                let resume = Resume::NewIncarnation;
                let mut resumed =
                    Mechanism::resume_cpu(&plan, key.duplicate(), shard, &[saved], resume, options).unwrap();
                (0..2).for_each(|_| resumed.add_to(&mut gradient).unwrap());
                // A row made in the background and used, and one that waits for its step.
                resumed.prepare().unwrap();
                resumed.add_to(&mut gradient).unwrap();
                resumed.prepare().unwrap();
                kept.push((noise, resumed, key));
            }
        }
    }
    let sampled = Plan::new(50, Form::independent(), 1.0).unwrap().with_sampling(sampling).unwrap();
    let key = Key::create_file(format!("{folder}/sampled")).unwrap();
    let sampler = Sampler::new(&sampled, &key).unwrap();
    sampler.batch(3).unwrap();
    // The threads that make rows ahead hold keys only while they work.
    std::thread::sleep(std::time::Duration::from_secs(1));
    say("between steps");
    drop((kept, sampler, key));
    say("freed");
}

/// Sends a message to the parent, and waits for its answer.
fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsecrets: {what}").unwrap();
    out.flush().unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

struct Mapping {
    start: u64,
    end: u64,
    name: String,
    excluded: bool,
}

/// The mappings that can be read, and whether core dumps leave them out.
fn mappings(pid: u32) -> Vec<Mapping> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut list: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let last = list.last_mut().unwrap();
            last.excluded = flags.contains(" dd");
            if !flags.contains(" rd") {
                list.pop();
            }
        } else if let Some((start, rest)) =
            line.split_once(' ').and_then(|(range, rest)| Some((range.split_once('-')?, rest)))
        {
            let number = |digits| u64::from_str_radix(digits, 16);
            if let (Ok(first), Ok(end)) = (number(start.0), number(start.1)) {
                let name = rest.split_whitespace().nth(4).unwrap_or("").to_owned();
                list.push(Mapping { start: first, end, name, excluded: false });
            }
        }
    }
    list.retain(|mapping| !mapping.name.starts_with("[v"));
    list
}

fn memory(pid: u32, mapping: &Mapping) -> Vec<u8> {
    let mut file = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    file.seek(SeekFrom::Start(mapping.start)).unwrap();
    let mut bytes = vec![0; (mapping.end - mapping.start) as usize];
    file.read_exact(&mut bytes).unwrap();
    bytes
}

/// The bytes that must not be found: every 16 bytes of a secret, and every word of one four times over, as vector registers hold it.
fn needles(secrets: &[[u8; 32]]) -> HashSet<[u8; 16]> {
    let halves = secrets.iter().flat_map(|secret| [&secret[..16], &secret[16..]]);
    let mut needles: HashSet<[u8; 16]> = halves.map(|half| half.try_into().unwrap()).collect();
    for word in secrets.iter().flat_map(|secret| secret.as_chunks::<4>().0) {
        needles.insert(std::array::from_fn(|i| word[i % 4]));
    }
    needles
}

/// The places in the child's memory that hold a needle.
fn find(pid: u32, needles: &HashSet<[u8; 16]>, everywhere: bool) -> Vec<String> {
    // A filter by the first two bytes keeps the search quick.
    let mut starts = vec![false; 1 << 16];
    needles.iter().for_each(|needle| starts[usize::from(u16::from_le_bytes([needle[0], needle[1]]))] = true);
    let mut found = Vec::new();
    for mapping in mappings(pid).iter().filter(|mapping| everywhere || !mapping.excluded) {
        for (at, window) in memory(pid, mapping).windows(16).enumerate() {
            if starts[usize::from(u16::from_le_bytes([window[0], window[1]]))] && needles.contains(window) {
                let place = mapping.start + at as u64;
                let depth = mapping.end - place;
                found.push(format!(
                    "{window:02x?} at {place:#x}, {depth} before the end of {:?}",
                    mapping.name
                ));
            }
        }
    }
    found
}

fn wait_for(child: &mut Child, lines: &mut impl BufRead, what: &str) {
    let mut line = String::new();
    while !line.contains(&format!("secrets: {what}")) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the child ended: {:?}", child.wait());
    }
}

#[test]
fn dumps_hold_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut child, &mut lines, "between steps");
    let excluded = mappings(child.id()).into_iter().filter(|mapping| mapping.excluded);
    let pages: Vec<u8> = excluded.flat_map(|mapping| memory(child.id(), &mapping)).collect();
    // The kernel gives pages of zeros, and a secret begins at the start of its page.
    let secrets: Vec<[u8; 32]> =
        pages.chunks(4096).map(|page| page[..32].try_into().unwrap()).filter(|s| *s != [0; 32]).collect();
    let known: HashSet<[u8; 32]> = secrets.iter().copied().collect();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_file() && (name.starts_with("key-") || name == "sampled") {
            let hex = std::fs::read(&path).unwrap();
            let byte = |i: usize| {
                u8::from_str_radix(std::str::from_utf8(&hex[2 * i..2 * i + 2]).unwrap(), 16).unwrap()
            };
            assert!(known.contains(&std::array::from_fn(byte)), "{name} is not on a page of secrets");
        }
    }
    let needles = needles(&secrets);
    let found = find(child.id(), &needles, false);
    assert!(found.is_empty(), "{} secrets, {} copies: {found:#?}", secrets.len(), found.len());
    println!("{} secrets, no copy outside their pages", secrets.len());
    child.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    wait_for(&mut child, &mut lines, "freed");
    let found = find(child.id(), &needles, true);
    assert!(found.is_empty(), "after free, {} copies: {found:#?}", found.len());
    child.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}
