//! The plot of the servers side by side: a panel a figure, a bar a server.
//!
//! Never computes a figure.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Better, FIGURES, Known, SERVERS};

/// Size of a panel in the picture's units, and the room of its title.
const WIDTH: u32 = 900;
const PANEL: u32 = 128;
const TITLE: i32 = 30;
/// Height of a bar's row, and of the bar in it.
const ROW: i32 = 22;
const BAR: i32 = 14;
/// Where bars begin and where the longest ends; left and right of that is text.
const LEFT: i32 = 150;
const RIGHT: i32 = 780;

const INK: RGBColor = RGBColor(0x22, 0x26, 0x2e);
const QUIET: RGBColor = RGBColor(0x5e, 0x66, 0x75);
const OURS: RGBColor = RGBColor(0x1f, 0x5f, 0xbf);
const THEIRS: RGBColor = RGBColor(0xb4, 0xbc, 0xc9);

/// As SVG.
pub(super) fn draw(known: &[Known]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let height = PANEL * (FIGURES.len() as u32 + 1);
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let panels = area.split_evenly((FIGURES.len() + 1, 1));
        let broken: Vec<_> = known.iter().map(|known| known.broken.0 as f64).collect();
        panel(&panels[0], "cases of the check that break continuity (less is better)", &broken, 0)?;
        for (number, (figure, area)) in FIGURES.iter().zip(&panels[1..]).enumerate() {
            let better = if figure.better == Better::More { "more" } else { "less" };
            let values: Vec<_> = known.iter().map(|known| known.median(number)).collect();
            panel(area, &format!("{} ({better} is better)", figure.title()), &values, figure.digits)?;
        }
        area.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Bars from nothing to the greatest of these values.
fn panel(area: &Area<'_>, title: &str, values: &[f64], digits: usize) -> Result<(), Box<dyn Error>> {
    let text = |colour: &RGBColor, across| {
        let font = ("sans-serif", 14).into_font().color(colour);
        font.pos(Pos::new(across, VPos::Center))
    };
    area.draw(&Text::new(title.to_owned(), (10, TITLE / 2), text(&QUIET, HPos::Left)))?;
    let greatest = values.iter().copied().fold(0.0, f64::max);
    for (row, (value, (_, name))) in (0..).zip(values.iter().zip(SERVERS)) {
        let middle = TITLE + row * ROW + ROW / 2;
        let part = if greatest > 0.0 { value / greatest } else { 0.0 };
        let end = LEFT + (f64::from(RIGHT - LEFT) * part).round() as i32;
        let colour = if row == 0 { OURS } else { THEIRS };
        area.draw(&Text::new(name, (LEFT - 10, middle), text(&INK, HPos::Right)))?;
        area.draw(&Rectangle::new([(LEFT, middle - BAR / 2), (end.max(LEFT + 1), middle + BAR / 2)], colour.filled()))?;
        area.draw(&Text::new(format!("{value:.digits$}"), (end + 8, middle), text(&INK, HPos::Left)))?;
    }
    Ok(())
}
