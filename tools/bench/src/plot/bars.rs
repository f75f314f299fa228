//! A panel of bars, and their heights.

use std::error::Error;
use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::legend::{self, Area, FONT, Marker, Name};
use super::{Panel, builder, look, span, tick, ticks, time_label};
use crate::instrument::{Column, Description, Quantity, Share};
use crate::report::{By, Report, Row};

pub(super) fn bars_panel<B: DrawingBackend>(
    report: &Report,
    panel: &Panel,
    by: By,
    area: &Area<'_, B>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let rows = &panel.rows;
    let value = |index: usize, row: &Row| row.value(index, panel.quantity, by);
    let is_measured = |index: &usize| rows.iter().any(|row| value(*index, row).is_some());
    let drawn: Vec<usize> = (0..report.entries.len()).filter(is_measured).collect();
    let values =
        rows.iter().flat_map(|row| drawn.iter().filter_map(move |index| value(*index, row)));
    let is_of_one = matches!(panel.quantity, Quantity::Share(Share { is_clamped: true, .. }));
    let heights = Heights::of(values.collect(), !panel.title.is_empty(), is_of_one);
    let bottom = heights.span.start;
    let name = |index: &usize| {
        let (text, color) = (report.entries[*index].name(), look(report, *index).0);
        Name { text, color, marker: Marker::Bar, width: 2 }
    };
    let names: Vec<Name> = drawn.iter().map(name).collect();
    let (area, below) = legend::split(area, &names);
    legend::draw(&below, &names)?;
    let mut chart =
        builder(&panel.title, &area).build_cartesian_2d(0.0..rows.len() as f64, heights)?;
    let middles: Vec<f64> = (0..rows.len()).map(|index| index as f64 + 0.5).collect();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(222, 222, 222))
        .x_desc(match report.workload.description().axis {
            [column] => column.head(),
            _ => "",
        })
        .y_desc(time_label(report, panel.quantity))
        .y_label_formatter(&|value| tick(panel.quantity, *value))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    let width = 0.8 / drawn.len() as f64;
    let pixels = f64::from(area.dim_in_pixel().0) * 0.85 * width / rows.len() as f64;
    let over = (FONT, if pixels < NUMBER_PIXELS { 10 } else { 13 })
        .into_font()
        .color(&BLACK)
        .pos(Pos::new(HPos::Center, VPos::Bottom));
    for (place, index) in drawn.iter().enumerate() {
        let color = look(report, *index).0;
        let left = move |row: usize| row as f64 + 0.1 + place as f64 * width;
        let bars: Vec<(f64, f64)> = rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| Some((left(at), value(*index, row)?)))
            .collect();
        chart.draw_series(bars.iter().map(|(x, value)| {
            Rectangle::new([(*x, bottom), (x + width * 0.92, *value)], color.filled())
        }))?;
        chart.draw_series(bars.iter().map(|(x, value)| {
            let at = (x + width * 0.46, *value);
            Text::new(tick(panel.quantity, *value), at, over.clone())
        }))?;
    }
    let under = (FONT, 14).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    let origin = area.get_base_pixel();
    for (row, middle) in rows.iter().zip(middles) {
        let (x, y) = chart.backend_coord(&(middle, bottom));
        let (x, y) = (x - origin.0, y - origin.1);
        let name = bar_name(report.workload.description(), row);
        area.strip_coord_spec().draw(&Text::new(name, (x, y + 6), under.clone()))?;
    }
    Ok(())
}

/// Axis of bars: linear, or logarithmic if the values span orders of magnitude.
pub(super) struct Heights {
    is_log: bool,
    span: Range<f64>,
    ticks: Vec<f64>,
}

impl Heights {
    /// Creates an axis with room above, more if the legend would hide bars. Shares go from 0 to 1.
    pub fn of(values: Vec<f64>, has_legend_above: bool, is_of_one: bool) -> Self {
        let (least, greatest) = span(values.into_iter(), 1.0);
        let room = if has_legend_above { 1.4 } else { 1.15 };
        if !is_of_one && least > 0.0 && greatest > least * LOG_FROM {
            let bottom = least / 2.0;
            let top = bottom * (greatest / bottom).powf(room);
            return Self { is_log: true, span: bottom..top, ticks: ticks((bottom, top)) };
        }
        if is_of_one {
            let ticks = (0..=5).map(|index| f64::from(index) / 5.0).collect();
            return Self { is_log: false, span: 0.0..room, ticks };
        }
        let top = if greatest > 0.0 { greatest * room } else { 1.0 };
        let ten = 10.0_f64.powf(top.log10().floor() - 1.0);
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * ten);
        let step = steps.into_iter().find(|step| top / step <= TICKS_MAX).unwrap_or(top);
        let ticks = (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= top);
        Self { is_log: false, span: 0.0..top, ticks: ticks.collect() }
    }
}

impl Ranged for Heights {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let scale = |value: f64| if self.is_log { value.log10() } else { value };
        let (from, to) = (scale(self.span.start), scale(self.span.end));
        let share = (scale(*value) - from) / (to - from);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.span.clone()
    }
}

impl ValueFormatter<f64> for Heights {}

/// Returns the label of a row's bars: `allreduce of 8 B`.
fn bar_name(description: &Description, row: &Row) -> String {
    let is_named = description.axis.contains(&Column::Operation);
    let says_something = |column: &&Column| !is_named || column.number(row.case) > 0;
    let columns = description
        .axis
        .iter()
        .filter(|column| **column == Column::Operation || says_something(column));
    let text = |column: &Column| column.text(&row.operation, row.case, row.statistic);
    let is_alone = description.axis.len() == 1;
    let words = columns.map(|column| match column {
        Column::Ranks if !is_alone => format!("{} ranks", text(column)),
        _ => text(column),
    });
    words.collect::<Vec<_>>().join(if is_named { " of " } else { ", " })
}

/// Ratio of the greatest to the least value from which bars are logarithmic.
const LOG_FROM: f64 = 50.0;
/// Marks on the axis of bars' values.
const TICKS_MAX: f64 = 10.0;
/// Numbers over narrower bars are small.
const NUMBER_PIXELS: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_several_orders_of_magnitude_are_as_high_as_their_logarithms() {
        let linear = Heights::of(vec![60.0, 70.0], false, false);
        assert_eq!(linear.ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]);
        assert_eq!([0.0, linear.span.end].map(|value| linear.map(&value, (0, 1000))), [0, 1000]);
        let none = Heights::of(vec![0.0, 0.0], true, false);
        assert_eq!((none.span.end, none.is_log), (1.0, false));
        let share = Heights::of(vec![0.001, 0.1], false, true);
        assert_eq!((share.span.end, share.ticks.len(), share.is_log), (1.15, 6, false));
        let log = Heights::of(vec![0.2, 2000.0], true, false);
        let at = |value| log.map(&value, (0, 10_000));
        assert_eq!((at(0.1), at(log.span.end)), (0, 10_000));
        assert!((at(2.0) - at(0.2) - (at(2000.0) - at(200.0))).abs() <= 2);
        assert!(log.ticks.len() >= 4 && log.ticks.iter().all(|tick| *tick <= log.span.end));
    }
}
