//! One key, one plan, one run id: whatever is started, resumed or repeated, no row of noise is made twice.

use corrnoise::{CpuOptions, Error, Form, Key, Mechanism, Plan, Resume, Shard};
use std::path::Path;

const DIM: u64 = 2000;

fn plan() -> Plan {
    Plan::new(20, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap()
}

fn key(folder: &Path, run_id: &str) -> Key {
    let path = folder.join("noise.key");
    if path.exists() { Key::from_file(path, run_id).unwrap() } else { Key::create_file(path).unwrap() }
}

fn start(folder: &Path, run_id: &str, shard: Shard) -> corrnoise::Result<Mechanism> {
    Mechanism::cpu(&plan(), key(folder, run_id), shard)
}

fn resume(folder: &Path, file: &str, mode: Resume) -> corrnoise::Result<Mechanism> {
    let files = [folder.join(file)];
    let shard = Shard::whole(DIM).unwrap();
    Mechanism::resume_cpu(&plan(), key(folder, ""), shard, &files, mode, CpuOptions::default())
}

fn steps(noise: &mut Mechanism, count: usize) {
    let mut gradient = vec![0.0_f32; noise.shard().num_coords() as usize];
    (0..count).for_each(|_| noise.add_to(&mut gradient).unwrap());
}

fn refusal<T>(outcome: corrnoise::Result<T>) -> String {
    match outcome {
        Err(Error::Repeated(text)) => text,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it was accepted"),
    }
}

fn claims(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder.join("noise.key.ledger")) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().file_name() != "lock").count()
}

#[test]
fn a_second_start_is_refused_with_the_three_ways_out() {
    let folder = tempfile::tempdir().unwrap();
    let whole = || Shard::whole(DIM).unwrap();
    let mut first = start(folder.path(), "", whole()).unwrap();
    assert!(refusal(start(folder.path(), "", whole())).contains("alive"));
    steps(&mut first, 3);
    drop(first);
    let text = refusal(start(folder.path(), "", whole()));
    for part in
        ["steps 0 to 2", "resume from a checkpoint", "another run id", "another key", "noise.key.ledger"]
    {
        assert!(text.contains(part), "{text}");
    }
    steps(&mut start(folder.path(), "other", whole()).unwrap(), 1);
    let other_plan = Plan::new(20, Form::independent(), 1.0).unwrap();
    steps(&mut Mechanism::cpu(&other_plan, key(folder.path(), ""), whole()).unwrap(), 1);
    // Another layout of the same coordinates has the same noise.
    let layout = corrnoise::Layout::new([("w", 500), ("b", 500)]).unwrap();
    assert!(refusal(start(folder.path(), "", layout.whole())).contains("steps 0 to 2"));
}

#[test]
fn a_start_without_a_step_leaves_no_claim() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let mut noise = start(folder.path(), "", Shard::whole(DIM).unwrap()).unwrap();
        assert_eq!(claims(folder.path()), 1);
        assert!(noise.add_to(&mut [0.0_f32; 5]).is_err(), "a refused gradient is no step");
        noise.save(folder.path().join("at 0")).unwrap();
        drop(noise);
        assert_eq!(claims(folder.path()), 0);
    }
    resume(folder.path(), "at 0", Resume::Exact).unwrap();
    // A start that fails after the claim was made takes it back.
    let broken = |_: &[corrnoise::RunKey], _: &Shard| -> corrnoise::Result<corrnoise::Cpu> {
        Err(Error::Device("no device".into()))
    };
    let shard = Shard::whole(DIM).unwrap();
    assert!(Mechanism::with_backend(&plan(), key(folder.path(), ""), shard, broken).is_err());
    assert_eq!(claims(folder.path()), 0);
}

#[test]
fn an_exact_resume_is_refused_where_steps_came_after_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut noise = start(folder.path(), "", Shard::whole(DIM).unwrap()).unwrap();
    steps(&mut noise, 4);
    noise.save(folder.path().join("at 4")).unwrap();
    assert!(refusal(resume(folder.path(), "at 4", Resume::Exact)).contains("alive"));
    steps(&mut noise, 3);
    noise.save(folder.path().join("at 7")).unwrap();
    drop(noise);
    let text = refusal(resume(folder.path(), "at 4", Resume::Exact));
    assert!(text.contains("steps 4 to 6") && text.contains("new incarnation"), "{text}");
    let mut exact = resume(folder.path(), "at 7", Resume::Exact).unwrap();
    // A new incarnation is never refused, whatever process is alive and whatever was made.
    let mut fresh = resume(folder.path(), "at 4", Resume::NewIncarnation).unwrap();
    steps(&mut fresh, 2);
    steps(&mut exact, 1);
    drop((fresh, exact));
    assert!(refusal(resume(folder.path(), "at 7", Resume::Exact)).contains("step 7 of"));
    let shared = || resume(folder.path(), "at 7", Resume::SharedIncarnation([9; 16]));
    steps(&mut shared().unwrap(), 2);
    assert!(refusal(shared()).contains("never used"));
}

#[test]
fn ranks_claim_their_parts_and_replicas_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let part = |range| Shard::whole(DIM).unwrap().within(range).unwrap();
    let mut low = start(folder.path(), "", part(0..1000)).unwrap();
    let mut high = start(folder.path(), "", part(1000..DIM)).unwrap();
    let text = refusal(start(folder.path(), "", part(999..1001)));
    assert!(text.contains("coordinates 999 to 999") || text.contains("coordinates 1000 to 1000"), "{text}");
    steps(&mut low, 2);
    steps(&mut high, 2);
    let replica = || Shard::whole(DIM).unwrap().replica();
    let mut one = start(folder.path(), "replicas", replica()).unwrap();
    let mut two = start(folder.path(), "replicas", replica()).unwrap();
    assert!(start(folder.path(), "replicas", Shard::whole(DIM).unwrap()).is_err());
    let mut sums = [vec![0.0_f32; DIM as usize], vec![0.0_f32; DIM as usize]];
    one.add_to(&mut sums[0]).unwrap();
    two.add_to(&mut sums[1]).unwrap();
    assert_eq!(sums[0], sums[1]);
    drop((one, two));
    assert!(refusal(start(folder.path(), "replicas", replica())).contains("step 0"));
}

#[test]
fn a_ledger_lies_where_it_was_named() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("elsewhere/ledger");
    let memory = || Key::from_bytes([7; 32], "run").with_ledger(&ledger);
    let shard = || Shard::whole(DIM).unwrap();
    steps(&mut Mechanism::cpu(&plan(), memory(), shard()).unwrap(), 1);
    assert!(refusal(Mechanism::cpu(&plan(), memory(), shard())).contains("elsewhere"));
    // Without a ledger, keys made in memory are the caller's own responsibility.
    let bare = || Key::from_bytes([7; 32], "run");
    steps(&mut Mechanism::cpu(&plan(), bare(), shard()).unwrap(), 1);
    steps(&mut Mechanism::cpu(&plan(), bare(), shard()).unwrap(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&ledger), 0o700);
        for entry in std::fs::read_dir(&ledger).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }
}

/// A checkpoint that holds the key resumes the run alone, and is no way around the ledger.
#[test]
fn a_key_in_a_checkpoint_keeps_its_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let whole = || Shard::whole(DIM).unwrap();
    let memory = Key::from_bytes([3; 32], "memory");
    for (key, name) in [(key(folder.path(), ""), "file"), (memory, "memory")] {
        let mut noise = Mechanism::cpu(&plan(), key, whole()).unwrap();
        steps(&mut noise, 3);
        let saved = folder.path().join(name);
        noise.save_with(&saved, corrnoise::SaveOptions { include_key: true }).unwrap();
        let exact = || {
            let checkpoint = corrnoise::Checkpoint::open(&saved).unwrap();
            let key = checkpoint.key().unwrap().unwrap();
            let cpu = |keys: &[corrnoise::RunKey], shard: &Shard| {
                corrnoise::Cpu::new(&plan(), keys, shard, CpuOptions::default())
            };
            Mechanism::resume_from(&plan(), key, whole(), vec![checkpoint], Resume::Exact, cpu)
        };
        if name == "file" {
            assert!(refusal(exact()).contains("alive"));
        }
        drop(noise);
        let mut resumed = exact().unwrap();
        assert!(refusal(exact()).contains("alive"));
        steps(&mut resumed, 1);
        drop(resumed);
        assert!(refusal(exact()).contains("step 3"), "{name}");
    }
}

/// A process that another thread is spawning has copies of all open files until it runs its program, and no fork handler closes them.
/// A child of the bare system call stands for it here: its copy must not keep the claim of a mechanism that has ended.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_claim_ends_with_its_mechanism_although_a_child_has_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut noise = start(folder.path(), "", Shard::whole(DIM).unwrap()).unwrap();
    steps(&mut noise, 2);
    noise.save(folder.path().join("two")).unwrap();
    // SAFETY: the child waits for a signal and does nothing else.
    let child = unsafe { libc::syscall(libc::SYS_fork) } as i32;
    if child == 0 {
        loop {
            // SAFETY: waits.
            unsafe { libc::pause() };
        }
    }
    drop(noise);
    let resumed = resume(folder.path(), "two", Resume::Exact);
    // SAFETY: the child above, which nobody else waits for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert_eq!(resumed.unwrap().next_step(), 2);
}

#[test]
fn a_replica_that_loads_a_state_is_compared_with_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let replica = || start(folder.path(), "", Shard::whole(DIM).unwrap().replica()).unwrap();
    let (mut one, mut two) = (replica(), replica());
    let early = two.state().unwrap();
    steps(&mut one, 5);
    let load = |noise: &mut Mechanism, state: &[u8], resume| {
        let checkpoint = corrnoise::Checkpoint::from_bytes(state.to_vec()).unwrap();
        noise.reload_cpu(vec![checkpoint], resume, CpuOptions::default())
    };
    assert!(refusal(load(&mut two, &early, Resume::Exact)).contains("steps 0 to 4"));
    load(&mut two, &early, Resume::NewIncarnation).unwrap();
}

/// An incarnation that made nothing may begin again, at any step.
#[test]
fn a_shared_nonce_that_made_no_step_is_not_used_up() {
    let mut noise =
        Mechanism::cpu(&plan(), Key::from_bytes([4; 32], "r"), Shard::whole(DIM).unwrap()).unwrap();
    steps(&mut noise, 3);
    let third = noise.state().unwrap();
    steps(&mut noise, 2);
    let fifth = noise.state().unwrap();
    let mut load = |state: &[u8], resume| {
        let checkpoint = corrnoise::Checkpoint::from_bytes(state.to_vec()).unwrap();
        noise.reload_cpu(vec![checkpoint], resume, CpuOptions::default())
    };
    let shared = Resume::SharedIncarnation([8; 16]);
    load(&fifth, shared).unwrap();
    load(&third, shared).unwrap();
    load(&fifth, Resume::Exact).unwrap();
    assert!(refusal(load(&third, Resume::Exact)).contains("steps 3 to 4"));
}

/// A link to a key file under another name leads to the same key.
#[cfg(unix)]
#[test]
fn links_to_a_key_share_its_ledger() {
    let folder = tempfile::tempdir().unwrap();
    steps(&mut start(folder.path(), "", Shard::whole(DIM).unwrap()).unwrap(), 1);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("noise.key"), &link).unwrap();
    let linked = Key::from_file(link, "").unwrap();
    assert!(refusal(Mechanism::cpu(&plan(), linked, Shard::whole(DIM).unwrap())).contains("step 0"));
}

/// A key in a place where nothing can be written, and no ledger named: the run starts, and a warning says what is missing.
#[cfg(target_os = "linux")]
#[test]
fn without_a_place_for_a_ledger_the_run_starts_and_warns_once() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::sync::Mutex;
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    corrnoise::warning::set_handler(|text| SEEN.lock().unwrap().push(text.to_owned()));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[3; 32]).unwrap();
    for _ in 0..2 {
        let key = Key::from_file(format!("/proc/self/fd/{}", file.as_raw_fd()), "").unwrap();
        steps(&mut Mechanism::cpu(&plan(), key, Shard::whole(DIM).unwrap()).unwrap(), 1);
    }
    let seen = SEEN.lock().unwrap();
    let about: Vec<_> = seen.iter().filter(|text| text.contains("no ledger")).collect();
    assert_eq!(about.len(), 1, "{seen:?}");
    assert!(about[0].contains("CORRNOISE_LEDGER"), "{about:?}");
}

#[cfg(unix)]
#[test]
fn a_key_file_that_others_may_read_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    drop(key(folder.path(), ""));
    let path = folder.path().join("noise.key");
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    let output = |mode_now: u32| {
        mode(mode_now);
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "reads_a_key", "--nocapture"])
            .env("CORRNOISE_LEDGER_KEY", &path)
            .output()
            .unwrap();
        String::from_utf8_lossy(&child.stderr).matches("chmod 600").count()
    };
    assert_eq!((output(0o600), output(0o644), output(0o640)), (0, 1, 1));
}

/// Reads a key twice; runs in a child only.
#[test]
fn reads_a_key() {
    if let Ok(path) = std::env::var("CORRNOISE_LEDGER_KEY") {
        (0..2).for_each(|_| drop(Key::from_file(&path, "").unwrap()));
    }
}

/// A device that counts its own steps, as a captured graph does.
struct Counting {
    made: u64,
}

impl corrnoise::backend::Backend for Counting {
    type Gradients<'list, 'memory: 'list> = ();

    fn check(&self, (): &()) -> corrnoise::Result<()> {
        Ok(())
    }

    fn step(&mut self, _: &corrnoise::backend::Step<'_>, (): ()) -> corrnoise::Result<()> {
        Ok(())
    }

    fn read_state(&self, _: usize, _: u64, _: &mut [u8]) -> corrnoise::Result<()> {
        Ok(())
    }

    fn write_state(&mut self, _: usize, _: u64, _: &[u8]) -> corrnoise::Result<()> {
        Ok(())
    }
}

impl corrnoise::backend::Replay for Counting {
    fn schedule(&mut self, _: &corrnoise::backend::Step<'_>) -> corrnoise::Result<()> {
        Ok(())
    }

    fn start(&mut self) -> corrnoise::Result<()> {
        if self.made == 99 { Err(Error::Device("no memory".into())) } else { Ok(()) }
    }

    fn enqueue(&mut self, (): ()) -> corrnoise::Result<()> {
        Ok(())
    }

    fn stop(&mut self) -> corrnoise::Result<u64> {
        Ok(self.made)
    }
}

#[test]
fn a_replay_claims_its_steps_and_gives_back_the_rest() {
    // The cases: steps that the device makes, whether the replay is ended, and what a later start is told.
    for (made, ended, told) in
        [(2, true, Some("steps 0 to 1")), (0, true, None), (2, false, Some("steps 0 to 4")), (99, true, None)]
    {
        let folder = tempfile::tempdir().unwrap();
        let shard = || Shard::whole(DIM).unwrap();
        let backend = |_: &[corrnoise::RunKey], _: &Shard| Ok(Counting { made });
        let mut noise = Mechanism::with_backend(&plan(), key(folder.path(), ""), shard(), backend).unwrap();
        assert_eq!(noise.begin_replay(5).is_ok(), made != 99);
        if ended && made != 99 {
            assert_eq!(noise.end_replay().unwrap(), made);
        }
        drop(noise);
        assert_eq!(claims(folder.path()), usize::from(told.is_some()), "{made} {ended}");
        match told {
            Some(told) => assert!(refusal(start(folder.path(), "", shard())).contains(told)),
            None => drop(start(folder.path(), "", shard()).unwrap()),
        }
    }
}
