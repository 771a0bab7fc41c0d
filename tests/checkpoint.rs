//! Stopping and resuming: which files are refused, and which rows a resumed run never makes again.

use corrnoise::backend::{Backend, Step};
use corrnoise::{
    Checkpoint, Cpu, CpuOptions, Form, Key, Layout, Mechanism, Plan, Resume, SaveOptions, Shard,
};
use std::path::{Path, PathBuf};

const DIM: u64 = 70_000;

fn plan() -> Plan {
    Plan::new(20, Form::blt(&[0.3, 0.1], &[0.5, 0.95]).unwrap(), 0.5).unwrap()
}

fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| i as u8), "checkpoint test")
}

fn shard() -> Shard {
    Shard::whole(DIM).unwrap()
}

/// A run that made `steps` steps and was saved.
fn saved(folder: &Path, steps: u64) -> PathBuf {
    let mut noise = Mechanism::cpu(&plan(), key(), shard()).unwrap();
    let mut gradient = vec![0.0_f32; DIM as usize];
    (0..steps).for_each(|_| noise.add_to(&mut gradient).unwrap());
    let path = folder.join("noise.safetensors");
    noise.save(&path).unwrap();
    path
}

fn resume(path: &Path, how: Resume) -> corrnoise::Result<Mechanism> {
    Mechanism::resume_cpu(&plan(), key(), shard(), &[path], how, CpuOptions::default())
}

fn next_row(noise: &mut Mechanism) -> Vec<f32> {
    let mut row = vec![0.0; noise.shard().num_coords() as usize];
    noise.add_to(&mut row).unwrap();
    row
}

#[test]
fn resuming_makes_new_rows_by_default_and_the_same_ones_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 5);
    let lost = next_row(&mut resume(&path, Resume::Exact).unwrap());
    assert_eq!(lost, next_row(&mut resume(&path, Resume::Exact).unwrap()));
    // Two resumes of one file, as after a second crash: neither repeats the other, nor the run that died.
    let first = next_row(&mut resume(&path, Resume::default()).unwrap());
    let second = next_row(&mut resume(&path, Resume::default()).unwrap());
    assert!(lost != first && lost != second && first != second);
    // Many processes share one new incarnation.
    let third = next_row(&mut resume(&path, Resume::SharedIncarnation([9; 16])).unwrap());
    assert_eq!(third, next_row(&mut resume(&path, Resume::SharedIncarnation([9; 16])).unwrap()));
    assert!(![&lost, &first, &second].contains(&&third));
}

/// Rolling back to an older checkpoint after a resumed run died must not make that run's rows again.
#[test]
fn rolling_back_makes_no_row_twice() {
    let folder = tempfile::tempdir().unwrap();
    let early = saved(folder.path(), 3);
    let late = folder.path().join("late");
    let mut noise = resume(&early, Resume::Exact).unwrap();
    (0..2).for_each(|_| drop(next_row(&mut noise)));
    noise.save(&late).unwrap();
    let step_5_after_late = next_row(&mut resume(&late, Resume::NewIncarnation).unwrap());
    let mut rolled_back = resume(&early, Resume::NewIncarnation).unwrap();
    (0..2).for_each(|_| drop(next_row(&mut rolled_back)));
    assert_eq!(rolled_back.next_step(), 5);
    let same = next_row(&mut rolled_back).iter().zip(&step_5_after_late).filter(|(a, b)| a == b).count();
    // Independent values agree by chance with probability Γ/(2σ√π), one of 227 on this plan's grid of 2⁻⁶ of the noise.
    assert!(same < DIM as usize / 100, "{same} of {DIM} coordinates agree");
}

#[test]
fn old_rows_keep_their_names_in_regenerated_history() {
    let folder = tempfile::tempdir().unwrap();
    let form = Form::regenerate(&[1.0, -0.5, -0.25]).unwrap();
    let plan = Plan::new(10, form, 1.0).unwrap();
    let shard = || Shard::whole(1000).unwrap();
    let path = folder.path().join("file");
    let mut noise = Mechanism::cpu(&plan, key(), shard()).unwrap();
    (0..3).for_each(|_| drop(next_row(&mut noise)));
    noise.save(&path).unwrap();
    let resumed = Mechanism::resume_cpu(
        &plan,
        key(),
        shard(),
        &[&path],
        Resume::SharedIncarnation([4; 16]),
        CpuOptions::default(),
    );
    let row = next_row(&mut resumed.unwrap());
    // The two incarnations have different keys, so the weighted sum can be told apart: compare with the old rows' own noise.
    let cipher = corrnoise::chacha::ChaCha::new(key().run_key(plan.fingerprint()).bytes(), plan.rounds());
    let old = |step, coord| {
        let name = corrnoise::Row::new(corrnoise::Family::Step, 0, step).unwrap();
        corrnoise::noise::normal(&cipher, name, coord)
    };
    let mut next = Mechanism::resume_cpu(
        &Plan::new(10, Form::regenerate(&[1.0, -0.5, -0.25]).unwrap(), 1.0).unwrap(),
        key(),
        shard(),
        &[&path],
        Resume::SharedIncarnation([4; 16]),
        CpuOptions::default(),
    )
    .unwrap();
    assert_eq!(next_row(&mut next), row, "a shared incarnation is the same for all");
    let residual = |coord: u64| {
        f64::from(row[coord as usize]) + 0.5 * f64::from(old(2, coord)) + 0.25 * f64::from(old(1, coord))
    };
    // What is left is the new incarnation's own row: a standard normal, and not the old incarnation's row of that step.
    let variance = (0..1000).map(|coord| residual(coord).powi(2)).sum::<f64>() / 1000.0;
    assert!((variance - 1.0).abs() < 0.2, "{variance}");
    let repeated =
        (0..1000).filter(|&coord| (residual(coord) - f64::from(old(3, coord))).abs() < 1e-5).count();
    assert!(repeated < 10, "{repeated}");
}

#[test]
fn a_used_nonce_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 5);
    let mut noise = resume(&path, Resume::SharedIncarnation([7; 16])).unwrap();
    drop(next_row(&mut noise));
    noise.save(&path).unwrap();
    let error = resume(&path, Resume::SharedIncarnation([7; 16])).err().unwrap().to_string();
    assert!(error.contains("0707") && error.contains("never used before"), "{error}");
}

#[test]
fn foreign_files_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 5);
    let refusal = |plan: &Plan, key: Key, shard: Shard| {
        let outcome = Mechanism::resume_cpu(plan, key, shard, &[&path], Resume::Exact, CpuOptions::default());
        outcome.err().expect("must be refused").to_string()
    };
    let other = Plan::new(21, plan().form().clone(), 0.5).unwrap();
    assert!(refusal(&other, key(), shard()).contains("it belongs to plan"));
    assert!(
        refusal(&plan(), Key::from_bytes([0; 32], "checkpoint test"), shard())
            .contains("another key or run id")
    );
    let other_run = refusal(&plan(), Key::from_bytes(std::array::from_fn(|i| i as u8), "x"), shard());
    assert!(other_run.contains("its run id is \"checkpoint test\""), "{other_run}");
    let other_layout = Layout::new([("w", DIM)]).unwrap().whole();
    assert!(refusal(&plan(), key(), other_layout).contains("its layout is"));
    std::fs::write(&path, b"12345").unwrap();
    assert!(refusal(&plan(), key(), shard()).contains("not a safetensors file"));
    std::fs::write(&path, [&9_u64.to_le_bytes()[..], b"{\"a\":[1]}"].concat()).unwrap();
    assert!(refusal(&plan(), key(), shard()).contains("not a safetensors file"));
    std::fs::remove_file(&path).unwrap();
    assert!(refusal(&plan(), key(), shard()).contains("cannot open checkpoint"));
}

#[test]
fn truncated_and_damaged_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 5);
    let whole = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for len in [0, 7, 8, header / 2, header, header + 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert!(resume(&path, Resume::Exact).is_err(), "cut to {len} bytes");
    }
    std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    assert!(resume(&path, Resume::Exact).err().unwrap().to_string().contains("foreign bytes"));
    // Flips bytes in all of the header and the hashes, and at places all over the state.
    let tail = whole.len() - 32 * 5;
    for at in (0..header).chain((header..tail).step_by(7919)).chain(tail..whole.len()) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        assert!(resume(&path, Resume::Exact).is_err(), "byte {at} of {}", whole.len());
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(resume(&path, Resume::Exact).is_ok());
}

#[test]
fn files_must_cover_the_shard_and_agree_on_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let save = |range: std::ops::Range<u64>, steps: u64| {
        let mut noise = Mechanism::cpu(&plan(), key(), shard().within(range.clone()).unwrap()).unwrap();
        (0..steps).for_each(|_| drop(next_row(&mut noise)));
        let path = folder.path().join(format!("{}-{steps}", range.start));
        noise.save(&path).unwrap();
        path
    };
    let refusal = |files: &[PathBuf]| {
        let outcome =
            Mechanism::resume_cpu(&plan(), key(), shard(), files, Resume::Exact, CpuOptions::default());
        outcome.err().expect("must be refused").to_string()
    };
    let (low, high, late) = (save(0..30_000, 2), save(30_001..DIM, 2), save(30_000..DIM, 3));
    assert!(refusal(&[low.clone(), high]).contains("first 30000 coordinates, not all 70000"));
    assert!(refusal(&[low, late]).contains("step 3 and the first file at 2"));
    assert!(refusal(&[]).contains("list of checkpoints"));
}

/// Where a tensor lies in a checkpoint, by its header.
fn place(bytes: &[u8], tensor: &str) -> Option<std::ops::Range<usize>> {
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..data]).unwrap();
    let offset = |i: usize| Some(data + header.get(tensor)?["data_offsets"][i].as_u64()? as usize);
    Some(offset(0)?..offset(1)?)
}

#[test]
fn the_key_is_stored_only_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 1);
    let secret: [u8; 32] = std::array::from_fn(|i| i as u8);
    let finds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).filter(|found| *found == part).count();
    let without = std::fs::read(&path).unwrap();
    assert_eq!((finds(&without, &secret), place(&without, "key")), (0, None));
    assert!(Checkpoint::open(&path).unwrap().key().unwrap().is_none());
    let mut noise = resume(&path, Resume::Exact).unwrap();
    noise.save_with(&path, SaveOptions { include_key: true }).unwrap();
    // The key is stored once, as a tensor of its own between the hashes and the MAC, and not as text.
    let with = std::fs::read(&path).unwrap();
    let key_at = place(&with, "key").unwrap();
    assert_eq!((finds(&with, &secret), finds(&with, b"000102030405")), (1, 0));
    assert_eq!(with[key_at.clone()], secret);
    assert_eq!(place(&with, "block_hashes").unwrap().end, key_at.start);
    assert_eq!(place(&with, "mac").unwrap(), key_at.end..with.len());
    let stored = || Checkpoint::open(&path).unwrap().key().unwrap().unwrap();
    let resumed =
        |key| Mechanism::resume_cpu(&plan(), key, shard(), &[&path], Resume::Exact, CpuOptions::default());
    assert_eq!(next_row(&mut resumed(stored()).unwrap()), next_row(&mut noise));
    // The MAC covers the key: a changed key neither resumes nor goes unnoticed under the right one.
    let mut changed = with.clone();
    changed[key_at.start + 5] ^= 1;
    std::fs::write(&path, &changed).unwrap();
    assert!(resumed(stored()).err().unwrap().to_string().contains("another key"));
    assert!(resumed(key()).err().unwrap().to_string().contains("corrupted"));
}

#[test]
fn a_checkpoint_in_memory_is_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 5);
    let mut noise = resume(&path, Resume::Exact).unwrap();
    let state = noise.state().unwrap();
    assert_eq!((state.capacity(), &state), (state.len(), &std::fs::read(&path).unwrap()));
    let from = |bytes: Vec<u8>| {
        let checkpoints = vec![Checkpoint::from_bytes(bytes)?];
        let cpu = |keys: &[_], shard: &_| Cpu::new(&plan(), keys, shard, CpuOptions::default());
        Mechanism::resume_from(&plan(), key(), shard(), checkpoints, Resume::Exact, cpu)
    };
    assert_eq!(next_row(&mut from(state.clone()).unwrap()), next_row(&mut noise));
    for (bytes, part) in [
        (b"12345".to_vec(), "not a safetensors file"),
        (state[..state.len() - 1].to_vec(), "truncated"),
        ([&state[..], b"more"].concat(), "foreign bytes"),
    ] {
        let error = from(bytes).err().unwrap().to_string();
        assert!(error.starts_with("checkpoint in memory refused: ") && error.contains(part), "{error}");
    }
    let mut changed = state;
    let at = place(&changed, "state").unwrap().start;
    changed[at] ^= 1;
    let error = from(changed).err().unwrap().to_string();
    assert!(error.starts_with("checkpoint in memory refused: corrupted: slot 0"), "{error}");
    let broken = Mechanism::with_backend(&plan(), key(), shard(), |_, _| Ok(HalfReadable)).unwrap();
    assert!(broken.state().unwrap_err().to_string().contains("gone"));
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_a_checkpoint() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 1);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A device whose state cannot be read beyond its first slot.
struct HalfReadable;

impl Backend for HalfReadable {
    type Gradients<'list, 'memory: 'list> = ();
    fn check(&self, _: &()) -> corrnoise::Result<()> {
        Ok(())
    }
    fn step(&mut self, _: &Step<'_>, _: ()) -> corrnoise::Result<()> {
        Ok(())
    }
    fn read_state(&self, slot: usize, _: u64, _: &mut [u8]) -> corrnoise::Result<()> {
        if slot == 0 { Ok(()) } else { Err(corrnoise::Error::Device("gone".into())) }
    }
    fn write_state(&mut self, _: usize, _: u64, _: &[u8]) -> corrnoise::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_save_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 2);
    let before = std::fs::read(&path).unwrap();
    let noise = Mechanism::with_backend(&plan(), key(), shard(), |_, _| Ok(HalfReadable)).unwrap();
    assert!(noise.save(&path).unwrap_err().to_string().contains("gone"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(
        noise.save(folder.path().join("no/such/folder")).unwrap_err().to_string().contains("cannot write")
    );
}

/// Headers that lie about shapes or segments are refused before anything is allocated from them.
#[test]
fn crafted_headers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 2);
    let whole = std::fs::read(&path).unwrap();
    let header_len = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&whole[8..8 + header_len]).unwrap().to_owned();
    let lies = [
        ("[2,70000]", "[2,18446744073709551615]"),
        ("[2,70000]", "[4,35000]"),
        ("\"F32\"", "\"F64\""),
        ("[[0,70000]]", "[[70000,0]]"),
        ("[[0,70000]]", "[[0,40000],[30000,60000]]"),
        ("[[0,70000]]", "[[0,30000],[90000,80000],[30000,80000]]"),
        ("[[0,70000]]", "[[0,30000],[30000,30000],[30000,70000]]"),
        ("\\\"version\\\":2", "\\\"version\\\":3"),
        ("\\\"next_step\\\":2", "\\\"next_step\\\":21"),
    ];
    for (from, to) in lies {
        let changed = header.replacen(from, to, 1);
        assert_ne!(changed, header, "{from} is not in {header}");
        let forged =
            [&(changed.len() as u64).to_le_bytes()[..], changed.as_bytes(), &whole[8 + header_len..]]
                .concat();
        std::fs::write(&path, forged).unwrap();
        assert!(resume(&path, Resume::Exact).is_err(), "{to}");
    }
}

/// State of another type is refused by name, even where its bytes have the right length.
#[test]
fn state_that_is_not_f32_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), 2);
    let whole = std::fs::read(&path).unwrap();
    let header_len = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&whole[8..8 + header_len]).unwrap();
    let changed = header.replacen("\"F32\"", "\"BF16\"", 1).replacen("[2,70000]", "[4,70000]", 1);
    let forged =
        [&(changed.len() as u64).to_le_bytes()[..], changed.as_bytes(), &whole[8 + header_len..]].concat();
    std::fs::write(&path, forged).unwrap();
    let error = resume(&path, Resume::Exact).err().expect("refused").to_string();
    assert!(error.ends_with("its state is BF16: expected F32"), "{error}");
}

/// A file of this version that was written once and kept: every later version must read it. `CORRNOISE_BLESS=1` writes it anew.
#[test]
fn a_stored_version_2_file_still_loads() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-v2.safetensors");
    let shard = || Shard::whole(600).unwrap();
    if std::env::var_os("CORRNOISE_BLESS").is_some() {
        let plan = Plan::new(20, Form::banded_toeplitz(&[2.0, 1.0, 0.75, 0.625]).unwrap(), 0.3).unwrap();
        plan.save(stored.with_extension("plan.json")).unwrap();
        let mut noise = Mechanism::cpu(&plan, key(), shard()).unwrap();
        (0..7).for_each(|_| drop(next_row(&mut noise)));
        noise.save(&stored).unwrap();
    }
    let plan = Plan::load(stored.with_extension("plan.json")).unwrap();
    let resumed =
        Mechanism::resume_cpu(&plan, key(), shard(), &[&stored], Resume::Exact, CpuOptions::default());
    let mut resumed = resumed.unwrap();
    assert_eq!(resumed.next_step(), 7);
    let mut whole = Mechanism::cpu(&plan, key(), shard()).unwrap();
    (0..7).for_each(|_| drop(next_row(&mut whole)));
    for _ in 7..12 {
        assert_eq!(next_row(&mut resumed), next_row(&mut whole));
    }
}

/// Files of version 1, written once and kept: the plan and the checkpoint are each refused in one line that says what to do.
#[test]
fn a_stored_version_1_file_is_refused() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-v1.safetensors");
    let error = Plan::load(stored.with_extension("plan.json")).unwrap_err().to_string();
    assert!(error.contains("made by version 1") && error.contains("`corrnoise plan`"), "{error}");
    let error = Checkpoint::open(&stored).err().expect("refused").to_string();
    assert!(error.contains("written by version 1") && error.contains("begin the run anew"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}
