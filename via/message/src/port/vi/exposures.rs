//! Memory that peers may reach, by the number that the layer has for each place: no table to be searched, since a place is
//! exposed and concealed for each long piece.

use uvia::Lease;

/// What is exposed.
#[derive(Default)]
pub(super) struct Exposures {
    /// A generation, and what keeps the memory registered and its peers' rights in force.
    places: Vec<(u32, Option<Lease>)>,
    free: Vec<u32>,
}

impl Exposures {
    /// Keeps a lease; answers its number.
    pub(super) fn keep(&mut self, lease: Lease) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, place) = &mut self.places[index as usize];
        *place = Some(lease);
        u64::from(*generation) << 32 | u64::from(index)
    }

    /// Ends that; answers the lease. A number that was ended already is none.
    pub(super) fn end(&mut self, number: u64) -> Option<Lease> {
        let index = number as u32;
        let (generation, place) = self.places.get_mut(index as usize)?;
        let lease = place.take_if(|_| u64::from(*generation) == number >> 32)?;
        *generation = generation.wrapping_add(1);
        self.free.push(index);
        Some(lease)
    }
}
