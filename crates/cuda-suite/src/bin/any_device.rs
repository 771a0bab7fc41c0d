//! Adds noise on the GPU if there is one, else on the CPU, as a trainer does that links the feature `cuda`.

use corrnoise::cuda::{OnCuda, stream};
use corrnoise::{Form, Key, Mechanism, Plan, Result, Shard};

fn main() -> Result<()> {
    let plan = Plan::new(10, Form::blt(&[0.6, 0.2], &[0.5, 0.97])?, 0.5)?;
    let (key, shard) = (Key::from_os()?, Shard::whole(1 << 20)?);
    let first = match stream(0) {
        Ok(stream) => {
            let mut gradient = stream.alloc_zeros::<f32>(1 << 20).expect("4 MB of device memory");
            let mut noise = Mechanism::cuda(&plan, key, shard, &stream)?;
            noise.add_to(&mut gradient)?;
            println!("{}", noise.backend().describe());
            stream.clone_dtoh(&gradient).expect("a copy to the host")[0]
        }
        Err(error) => {
            println!("no GPU: {error}");
            let mut gradient = vec![0.0_f32; 1 << 20];
            let mut noise = Mechanism::cpu(&plan, key, shard)?;
            noise.add_to(&mut gradient)?;
            println!("CPU: {}", noise.describe());
            gradient[0]
        }
    };
    println!("first value {first}");
    Ok(())
}
