// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Problems and schedules as JSON: docs/spec/schedule-problem.md.
#pragma once

#include "compiler/Schedule/Problem/Problem.h"

#include <string>

namespace millrace::schedule {

/// 16 hexadecimal digits that differ between problems, by which a schedule names its problem.
std::string fingerprintOf(const ScheduleProblem &problem);

/// The text of a problem; reading it gives the same problem.
std::string writeProblem(const ScheduleProblem &problem);
/// Errors name the key, the entry and what it should be. What is read passes check().
Expected<ScheduleProblem> readProblem(const std::string &text);

std::string writeSchedule(const ScheduleProblem &problem, const Starts &starts);
/// The starts of a problem's bundles. Errors: a schedule of another problem, a bundle that is
/// missing, unknown or started twice. Whether they are a schedule is for verify() to say.
Expected<Starts> readSchedule(const std::string &text, const ScheduleProblem &problem);

} // namespace millrace::schedule
