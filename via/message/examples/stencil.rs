//! Heat spreads over a plate that is cut into tiles, one for each rank; edges are exchanged after each step, rows as they
//! lie and columns gathered. Rank 0 gathers the plate, computes it alone too, and compares:
//! `uvia-launch -n 6 stencil [STEPS]`.

mod common;

use std::error::Error;
use std::process::ExitCode;

use uvia_message::{Channel, ReceiveMode, Result, Session, Source};
use zerocopy::IntoBytes;

/// Points of a tile, in each direction.
const TILE: usize = 60;

/// A part of the plate, with a border of its neighbours' points.
struct Plate {
    width: usize,
    height: usize,
    points: Vec<f64>,
}

impl Plate {
    /// As it is at first, from a place of the whole plate on.
    fn new(width: usize, height: usize, x: usize, y: usize) -> Self {
        let mut plate = Self { width, height, points: vec![0.0; (width + 2) * (height + 2)] };
        for row in 1..=height {
            for column in 1..=width {
                let at = plate.at(column, row);
                plate.points[at] = (((y + row) * 7 + (x + column) * 3) % 100) as f64;
            }
        }
        plate
    }

    fn at(&self, x: usize, y: usize) -> usize {
        y * (self.width + 2) + x
    }

    /// One step; what is beyond the border is cold.
    fn step(&mut self) {
        let old = self.points.clone();
        for y in 1..=self.height {
            for x in 1..=self.width {
                let [up, down] = [self.at(x, y - 1), self.at(x, y + 1)];
                let here = self.at(x, y);
                self.points[here] = (old[up] + old[down] + old[here - 1] + old[here + 1]) / 4.0;
            }
        }
    }

    fn row(&self, y: usize) -> std::ops::Range<usize> {
        self.at(1, y)..self.at(1, y) + self.width
    }

    fn column(&self, x: usize) -> Vec<f64> {
        (1..=self.height).map(|y| self.points[self.at(x, y)]).collect()
    }

    fn set_column(&mut self, x: usize, values: &[f64]) {
        for (y, value) in (1..).zip(values) {
            let at = self.at(x, y);
            self.points[at] = *value;
        }
    }

    /// Its points without the border, row by row.
    fn inner(&self) -> Vec<f64> {
        (1..=self.height).flat_map(|y| self.points[self.row(y)].to_vec()).collect()
    }
}

/// How the ranks lie: as square as their number allows.
#[derive(Clone, Copy)]
struct Grid {
    columns: usize,
    rows: usize,
}

impl Grid {
    fn new(ranks: usize) -> Self {
        let mut rows = 1;
        for n in 1..=ranks {
            if ranks.is_multiple_of(n) && n * n <= ranks {
                rows = n;
            }
        }
        Self { columns: ranks / rows, rows }
    }

    fn place(self, rank: usize) -> (usize, usize) {
        (rank % self.columns, rank / self.columns)
    }
}

/// Gives a neighbour a line of points and gets one from it.
fn exchange(channel: &Channel, other: usize, line: &[f64]) -> Result<Vec<f64>> {
    let mut got = vec![0.0; line.len()];
    channel.exchange(other, line.as_bytes(), other, got.as_mut_bytes())?;
    Ok(got)
}

/// Exchanges all edges: along rows and then along columns, pairs that begin at an even place first, so that nobody waits
/// for who waits for somebody else.
fn exchange_edges(channel: &Channel, plate: &mut Plate, grid: Grid, rank: usize) -> Result<()> {
    let (x, y) = grid.place(rank);
    for parity in 0..2 {
        if x % 2 == parity && x + 1 < grid.columns {
            let edge = exchange(channel, rank + 1, &plate.column(TILE))?;
            plate.set_column(TILE + 1, &edge);
        } else if x % 2 != parity && x > 0 {
            let edge = exchange(channel, rank - 1, &plate.column(1))?;
            plate.set_column(0, &edge);
        }
    }
    for parity in 0..2 {
        if y % 2 == parity && y + 1 < grid.rows {
            let edge = exchange(channel, rank + grid.columns, &plate.points[plate.row(TILE)])?;
            let below = plate.row(TILE + 1);
            plate.points[below].copy_from_slice(&edge);
        } else if y % 2 != parity && y > 0 {
            let edge = exchange(channel, rank - grid.columns, &plate.points[plate.row(1)])?;
            let above = plate.row(0);
            plate.points[above].copy_from_slice(&edge);
        }
    }
    Ok(())
}

/// All tiles, at rank 0, as one plate without a border.
fn gather(channel: &Channel, mine: Vec<f64>, grid: Grid) -> Result<Vec<f64>> {
    let width = grid.columns * TILE;
    let mut whole = vec![0.0; width * grid.rows * TILE];
    let mut put = |rank: usize, tile: &[f64]| {
        let (x, y) = grid.place(rank);
        for (row, values) in tile.chunks(TILE).enumerate() {
            let at = (y * TILE + row) * width + x * TILE;
            whole[at..at + TILE].copy_from_slice(values);
        }
    };
    put(0, &mine);
    for _ in 1..grid.columns * grid.rows {
        let mut tile = vec![0.0; TILE * TILE];
        let room = &mut tile;
        let from = channel.receive(Source::Any, |message| {
            message.slice(room, ReceiveMode::Cheaper)?;
            Result::Ok(message.rank())
        })?;
        put(from, &tile);
    }
    Ok(whole)
}

fn run() -> std::result::Result<(), Box<dyn Error>> {
    let steps: usize = std::env::args().nth(1).map_or(Ok(20), |word| word.parse())?;
    let session = Session::from_environment()?;
    let (rank, grid) = (session.rank(), Grid::new(session.size()));
    let edges = session.channel(0, &[])?;
    // What is gathered must not be taken for an edge.
    let results = session.channel(1, &[])?;
    let (x, y) = grid.place(rank);
    let mut plate = Plate::new(TILE, TILE, x * TILE, y * TILE);
    for _ in 0..steps {
        exchange_edges(&edges, &mut plate, grid, rank)?;
        plate.step();
    }
    let mine = plate.inner();
    if rank > 0 {
        results.send(0, |message| message.slice(&mine, ReceiveMode::Cheaper))?;
        return Ok(());
    }
    let whole = gather(&results, mine, grid)?;
    let mut alone = Plate::new(grid.columns * TILE, grid.rows * TILE, 0, 0);
    (0..steps).for_each(|_| alone.step());
    let same = whole == alone.inner();
    let verdict = if same { "as one alone" } else { "WRONG" };
    println!("{} by {} tiles, {steps} steps: {verdict}", grid.columns, grid.rows);
    if same { Ok(()) } else { Err("the ranks have computed something else".into()) }
}

fn main() -> ExitCode {
    common::tell(run())
}
