//! Markers of libraries, and legends below panels, where they hide no point.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::library::LibraryKind;

/// Part of a picture.
pub(super) type Area<'a, B> = DrawingArea<B, Shift>;

/// Marker of the points of a curve. No two libraries have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Ring,
    Triangle,
    Square,
    Diamond,
    Cross,
    Plus,
    /// A dashed line without points.
    Dashes,
    /// A line without points.
    Line,
    /// A bar.
    Bar,
}

impl Marker {
    /// Returns the marker of a library.
    pub fn of(library: LibraryKind) -> Self {
        match library {
            LibraryKind::Canele => Self::Circle,
            LibraryKind::Mpich => Self::Triangle,
            LibraryKind::OpenMpi => Self::Cross,
            LibraryKind::IntelMpi => Self::Square,
            LibraryKind::RawTcp => Self::Plus,
            LibraryKind::TcpStreams => Self::Diamond,
            LibraryKind::Memory => Self::Ring,
        }
    }
}

/// A name in a legend.
pub(super) struct Name {
    pub text: String,
    pub color: RGBColor,
    pub marker: Marker,
    pub width: u32,
}

/// Draws a marker at a place, in pixels.
pub(super) fn draw_marker<B: DrawingBackend>(
    area: &Area<'_, B>,
    marker: Marker,
    (x, y): (i32, i32),
    color: RGBColor,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let (filled, line) = (color.filled(), color.stroke_width(2));
    let square = |wide: i32, high: i32| [(x - wide, y - high), (x + wide, y + high)];
    match marker {
        Marker::Circle => area.draw(&Circle::new((x, y), 4, filled))?,
        Marker::Ring => area.draw(&Circle::new((x, y), 4, line))?,
        Marker::Triangle => area.draw(&TriangleMarker::new((x, y), 6, filled))?,
        Marker::Square => area.draw(&Rectangle::new(square(4, 4), filled))?,
        Marker::Diamond => {
            let corners = vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)];
            area.draw(&Polygon::new(corners, filled))?;
        }
        Marker::Cross => area.draw(&Cross::new((x, y), 4, line))?,
        Marker::Plus => {
            area.draw(&PathElement::new(square(5, 0), line))?;
            area.draw(&PathElement::new(square(0, 5), line))?;
        }
        Marker::Bar => area.draw(&Rectangle::new(square(11, 5), filled))?,
        Marker::Dashes | Marker::Line => {}
    }
    Ok(())
}

/// Splits an area into that of a panel, and one for a legend of these names below it.
pub(super) fn split<'a, B: DrawingBackend>(
    area: &Area<'a, B>,
    names: &[Name],
) -> (Area<'a, B>, Area<'a, B>) {
    let (width, height) = area.dim_in_pixel();
    let rows = places(names, width as i32).last().map_or(0, |(_, row)| row + 1);
    area.split_vertically(height.saturating_sub(rows as u32 * ROW_PIXELS as u32))
}

/// Draws a legend.
pub(super) fn draw<B: DrawingBackend>(
    area: &Area<'_, B>,
    names: &[Name],
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let style = (FONT, 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    let width = area.dim_in_pixel().0 as i32;
    for (Name { text, color, marker, width }, (x, row)) in names.iter().zip(places(names, width)) {
        let y = row * ROW_PIXELS + ROW_PIXELS / 2;
        let ends = [(x, y), (x + MARK_PIXELS, y)];
        let line = color.stroke_width(*width);
        match marker {
            Marker::Bar => {}
            Marker::Dashes => {
                let dashes = [0, 9, 18].map(|from| [(x + from, y), (x + from + 5, y)]);
                dashes.iter().try_for_each(|dash| area.draw(&PathElement::new(*dash, line)))?;
            }
            _ => area.draw(&PathElement::new(ends, line))?,
        }
        draw_marker(area, *marker, (x + MARK_PIXELS / 2, y), *color)?;
        area.draw(&Text::new(text.as_str(), (x + MARK_PIXELS + 6, y), style.clone()))?;
    }
    Ok(())
}

/// Returns the place of each name: its left edge, and its row.
fn places(names: &[Name], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut row) = (LEFT_PIXELS, 0);
    let place = |name: &Name| {
        let needed = MARK_PIXELS + 24 + LETTER_PIXELS * name.text.chars().count() as i32;
        if x > LEFT_PIXELS && x + needed > width {
            (x, row) = (LEFT_PIXELS, row + 1);
        }
        let at = (x, row);
        x += needed;
        at
    };
    names.iter().map(place).collect()
}

/// Font of all text.
pub(super) const FONT: &str = "sans-serif";
const ROW_PIXELS: i32 = 20;
const MARK_PIXELS: i32 = 22;
/// Left edge of the first name: that of the axis.
const LEFT_PIXELS: i32 = 100;
/// Width of a letter, on average.
const LETTER_PIXELS: i32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_libraries_share_a_marker() {
        let others = [LibraryKind::RawTcp, LibraryKind::TcpStreams, LibraryKind::Memory];
        let markers: Vec<_> = LibraryKind::MPI.into_iter().chain(others).map(Marker::of).collect();
        for (place, marker) in markers.iter().enumerate() {
            assert!(!markers[..place].contains(marker), "{marker:?}");
        }
    }

    #[test]
    fn names_that_do_not_fit_go_to_further_rows() {
        let name =
            |text: &str| Name { text: text.into(), color: BLACK, marker: Marker::Circle, width: 2 };
        let names = ["Canele", "Open MPI", "a very long name of something else", "raw TCP"];
        let names = names.map(name);
        let places = places(&names, 420);
        assert_eq!(places.iter().map(|(_, row)| *row).collect::<Vec<_>>(), [0, 0, 1, 2]);
        assert!(places[0].0 < places[1].0 && places[2].0 == LEFT_PIXELS);
    }
}
