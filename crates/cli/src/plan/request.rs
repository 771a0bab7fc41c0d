//! From the numbers a trainer knows to the planner's request.

use crate::args::{PlanArgs, SettingName, Unit};
use corrnoise::planner::{self, PrivacyUnit, Request, Spelling};

/// What the flags say.
pub fn request(args: &PlanArgs) -> Request {
    Request {
        num_steps: args.steps,
        epochs: args.epochs,
        dataset_size: args.dataset_size,
        batch_size: args.batch_size,
        participation: args.participation.clone(),
        setting: args.setting.map(|name| match name {
            SettingName::Centralized => planner::SettingName::Centralized,
            SettingName::Federated => planner::SettingName::Federated,
            SettingName::Streaming => planner::SettingName::Streaming,
        }),
        min_sep: args.min_sep,
        max_participations: args.max_participations,
        epsilon: args.epsilon,
        delta: args.delta,
        mu: args.mu,
        noise_multiplier: args.noise_multiplier,
        clip_norm: args.clip_norm,
        adjacency: args.adjacency,
        privacy_unit: match args.unit {
            Unit::Example => PrivacyUnit::Example,
            Unit::User => PrivacyUnit::User,
        },
        workload: args.workload.clone(),
        objective: args.objective,
        max_state_bytes: args.max_state_bytes,
        mechanism: args.strategy.clone(),
        sampling: args.sampling,
        rounds: args.rounds,
        spelling: Spelling::Flags,
    }
}
