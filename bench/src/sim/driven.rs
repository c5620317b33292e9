//! Targets of device mapper with their kcopyd over a disk in virtual time.

use super::world::{Happening, World};
use emulation::host::kcopyd::users::{Driven, User};
use emulation::{Instant, Request};

/// Lets a target do all that it has to do; the instant at which it has.
///
/// # Errors
/// It waits for something that never comes.
pub fn run<U: User>(world: &mut World, driven: &mut Driven<U>) -> Result<Instant, String> {
    watched(world, driven, &mut |_| {})
}

/// The same, and shows each request that is sent.
///
/// # Errors
/// See [`run`].
pub fn watched<U: User>(
    world: &mut World,
    driven: &mut Driven<U>,
    see: &mut dyn FnMut(&Request),
) -> Result<Instant, String> {
    let mut alarm = None;
    loop {
        for emit in driven.run(world.now()) {
            see(&emit.request);
            world.submit(emit);
        }
        let wake = driven.kcopyd.wake_at();
        if let Some(at) = wake.filter(|_| wake != alarm) {
            world.alarm(at, 0);
        }
        alarm = wake;
        match world.step() {
            Some(Happening::Done(at, id, completion)) => driven.complete(at, id, &completion),
            Some(Happening::Alarm(..)) => {}
            None if driven.user.is_over() => return Ok(world.now()),
            None => return Err(format!("it waits for nothing: {:?}", driven.user)),
        }
    }
}
