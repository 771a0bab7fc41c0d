//! What a save leaves behind after success, failure, a race and a kill, with and without unnamed temporary files.

use super::*;
use std::path::PathBuf;
use std::sync::Barrier;

const KINDS: [Kind; 2] = [Kind::Unnamed, Kind::Named];

fn save(kind: Kind, path: &Path, access: Access, bytes: &[u8]) -> Result<()> {
    write_through(kind, path, access, |file| file.write_all(bytes).map_err(Error::io("write", path)))
}

/// The names of the temporary files in a folder.
fn temporaries(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.ends_with("-tmp")).collect()
}

#[cfg(unix)]
fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[cfg(unix)]
#[test]
fn a_file_is_never_wider_than_in_the_end() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let usual = folder.path().join("usual");
        File::create(&usual).unwrap();
        for (access, expected) in [(Access::Owner, 0o600), (Access::Usual, mode_of(&usual))] {
            let path = folder.path().join(format!("{access:?}"));
            for content in ["old", "new"] {
                write_through(kind, &path, access, |file| -> Result<()> {
                    file.write_all(content.as_bytes()).unwrap();
                    let names = temporaries(folder.path());
                    assert_eq!(names.len(), usize::from(kind == Kind::Named), "{names:?}");
                    names.iter().for_each(|name| assert_eq!(mode_of(&folder.path().join(name)), expected));
                    Ok(())
                })
                .unwrap();
                assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
                assert_eq!(mode_of(&path), expected);
            }
        }
        create_through(kind, &folder.path().join("key"), Access::Owner, b"secret").unwrap();
        assert_eq!(mode_of(&folder.path().join("key")), 0o600);
        assert_eq!(temporaries(folder.path()), [""; 0]);
    }
}

#[test]
fn failures_leave_the_old_file_and_nothing_else() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        save(kind, &path, Access::Usual, b"old").unwrap();
        let failed = write_through(kind, &path, Access::Usual, |file| {
            file.write_all(b"half").unwrap();
            Err::<(), _>(Error::Device("gone".into()))
        });
        assert!(failed.unwrap_err().to_string().contains("gone"));
        let panicked = std::panic::catch_unwind(|| {
            write_through(kind, &path, Access::Usual, |_| -> Result<()> { panic!("in the middle") })
        });
        assert!(panicked.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        for (path, part) in
            [(folder.path().join("no/such"), "cannot write"), (PathBuf::from("/"), "cannot write")]
        {
            assert!(save(kind, &path, Access::Usual, b"x").unwrap_err().to_string().contains(part));
        }
        let refusal = save(kind, folder.path(), Access::Usual, b"x").unwrap_err().to_string();
        assert!(refusal.contains("not a file"), "{refusal}");
        #[cfg(unix)]
        assert!(save(kind, Path::new("/dev/null"), Access::Usual, b"x").is_err());
    }
}

#[cfg(unix)]
#[test]
fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let long = "n".repeat(255);
    for kind in KINDS {
        for target in ["state", &long] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(target);
            let make = |name: &OsStr| {
                let file = folder.path().join(names::fresh(name).unwrap());
                std::fs::write(&file, b"past noise").unwrap();
                file
            };
            let dead = [make(target.as_ref()), make(target.as_ref())];
            let others = make("other".as_ref());
            let live = Temporary::open(Kind::Named, folder.path(), target.as_ref(), Access::Owner).unwrap();
            let link = folder.path().join(names::fresh(target.as_ref()).unwrap());
            std::os::unix::fs::symlink(&others, &link).unwrap();
            let inner = folder.path().join(names::fresh(target.as_ref()).unwrap());
            std::fs::create_dir(&inner).unwrap();
            save(kind, &path, Access::Owner, b"whole").unwrap();
            assert!(!dead.iter().any(|file| file.exists()), "{kind:?}: leftovers are there");
            assert!(others.exists() && link.symlink_metadata().is_ok() && inner.exists());
            live.file().write_all(b"later").unwrap();
            live.replace(&path).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"later");
            // Leftovers are removed although the target itself exists.
            let dead = make(target.as_ref());
            let refused = create_through(kind, &path, Access::Owner, b"x").unwrap_err();
            assert_eq!((refused.kind(), dead.exists()), (io::ErrorKind::AlreadyExists, false));
        }
    }
}

#[test]
fn saves_to_one_target_at_the_same_time_all_succeed() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let path = &path;
                scope.spawn(move || {
                    (0..40).for_each(|_| save(kind, path, Access::Owner, &[thread; 5000]).unwrap());
                });
            }
        });
        let content = std::fs::read(&path).unwrap();
        assert!(content.len() == 5000 && content.iter().all(|byte| *byte == content[0]));
        assert_eq!(temporaries(folder.path()), [""; 0]);
    }
}

/// Every creator writes a content of its own, so that a second success or a partial file would show.
#[test]
fn of_racing_creators_exactly_one_succeeds() {
    const CREATORS: usize = 4;
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..200 {
            let path = folder.path().join(format!("key {round}"));
            let start = Barrier::new(CREATORS + 1);
            let (outcomes, seen) = std::thread::scope(|scope| {
                let create = |creator: usize| {
                    start.wait();
                    create_through(kind, &path, Access::Owner, &[creator as u8; 32])
                };
                let handles: Vec<_> = (0..CREATORS).map(|i| scope.spawn(move || create(i))).collect();
                start.wait();
                let seen = loop {
                    if let Ok(bytes) = std::fs::read(&path) {
                        break bytes;
                    }
                };
                (handles.into_iter().map(|handle| handle.join().unwrap()).collect::<Vec<_>>(), seen)
            });
            let winners: Vec<usize> = (0..CREATORS).filter(|i| outcomes[*i].is_ok()).collect();
            assert_eq!(winners.len(), 1, "round {round}: {outcomes:?}");
            assert_eq!(seen, [winners[0] as u8; 32], "what a reader saw first");
            assert_eq!(std::fs::read(&path).unwrap(), seen);
            let refused = outcomes.into_iter().filter_map(io::Result::err);
            refused.for_each(|error| assert_eq!(error.kind(), io::ErrorKind::AlreadyExists));
        }
        assert_eq!(temporaries(folder.path()), [""; 0]);
    }
}

const CHILD: &str = "CORRNOISE_TEST_SAVES_INTO";
const SIZE: usize = 1 << 20;

/// Saves until it is killed; runs in a process of its own.
fn save_for_ever(folder: &Path) -> ! {
    let kind = if folder.ends_with("Named") { Kind::Named } else { Kind::Unnamed };
    println!("ready");
    loop {
        for byte in 0..=u8::MAX {
            save(kind, &folder.join("state"), Access::Owner, &vec![byte; SIZE]).unwrap();
            if kind == Kind::Unnamed {
                let new = folder.join(format!("new {byte}"));
                save(kind, &new, Access::Owner, b"whole").unwrap();
                std::fs::remove_file(new).unwrap();
            }
        }
    }
}

/// Starts a process that saves into `folder`, and kills it after `after` milliseconds of saving.
fn kill_a_saver(folder: &Path, after: u64) {
    use std::io::BufRead;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "file::tests::killed_saves_leave_a_whole_file", "--nocapture"])
        .env(CHILD, folder)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")));
    std::thread::sleep(std::time::Duration::from_millis(after));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Kills `CORRNOISE_KILLS` processes for each kind of temporary file.
#[test]
fn killed_saves_leave_a_whole_file() {
    if let Some(folder) = std::env::var_os(CHILD) {
        save_for_ever(Path::new(&folder));
    }
    let kills = std::env::var("CORRNOISE_KILLS").map_or(100_u64, |count| count.parse().unwrap());
    for kind in KINDS {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join(format!("{kind:?}"));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("state");
        save(kind, &path, Access::Owner, &[7; SIZE]).unwrap();
        let mut left = 0;
        for kill in 0..kills {
            // The delays run from 0 to 16 ms, in an order that saves cannot keep in step with.
            kill_a_saver(&folder, kill * 7919 % 17);
            let content = std::fs::read(&path).unwrap();
            assert!(
                content.len() == SIZE && content.iter().all(|byte| *byte == content[0]),
                "a part of a file"
            );
            let names = temporaries(&folder);
            // Perhaps no later save uses these names, and then nothing would clear them.
            assert!(names.iter().all(|name| name.starts_with(".state.")), "{names:?}");
            for byte in 0..=u8::MAX {
                let new = folder.join(format!("new {byte}"));
                assert!(std::fs::read(&new).map_or(true, |content| content == b"whole"));
                let _ = std::fs::remove_file(new);
            }
            assert!(names.len() <= 1, "saves clear what the one before them left: {names:?}");
            left += names.len();
        }
        println!("{kind:?}: {left} temporaries left by {kills} kills, before the next save");
        // A named temporary file exists nearly all the time: if none was ever left, nothing was tested.
        assert!(kind == Kind::Unnamed || left > 0);
        save(kind, &path, Access::Owner, b"last").unwrap();
        assert_eq!(temporaries(&folder), [""; 0]);
    }
}
