//! A run from its key to its resumption, with this crate alone and in little memory: what a memory checker is run on.

use corrnoise_core::{CpuOptions, Form, Key, Layout, Mechanism, Plan, Resume};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("corrnoise-one-run-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let outcome = run(&folder);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn run(folder: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let shard = Layout::new([("weight", 1000), ("bias", 10)])?.whole();
    let forms = [
        Form::blt(&[0.3, 0.1], &[0.5, 0.95])?,
        Form::banded_toeplitz(&[1.0, 0.5, 0.25])?,
        Form::banded_toeplitz(&[1.0; 12])?,
        Form::regenerate(&[1.0, -0.5])?,
    ];
    for (number, form) in forms.into_iter().enumerate() {
        let plan = Plan::new(4, form, 0.5)?;
        let key = Key::create_file(folder.join(format!("key {number}")))?;
        let file = folder.join("noise.safetensors");
        let mut noise = Mechanism::cpu(&plan, key.duplicate(), shard.clone())?;
        let (mut weight, mut bias) = (vec![0.0_f32; 1000], vec![0.0_f32; 10]);
        noise.add_to_all(&mut [&mut weight, &mut bias])?;
        noise.save(&file)?;
        noise.add_to_all(&mut [&mut weight, &mut bias])?;
        let options = CpuOptions::default();
        let mut resumed =
            Mechanism::resume_cpu(&plan, key, shard.clone(), &[&file], Resume::NewIncarnation, options)?;
        resumed.add_to_all(&mut [&mut weight, &mut bias])?;
        println!("form {number}: step {}, sum {}", resumed.next_step(), weight.iter().sum::<f32>());
    }
    Ok(())
}
