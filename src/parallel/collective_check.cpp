// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/collective_check.hpp"

#include <optional>

namespace gyr {

namespace {

std::optional<Error> error_of(const std::function<void()>& f) {
  try {
    f();
    return {};
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(Exit::internal, error.what());
  }
}

}  // namespace

void collective_check(Communicator& world, const std::function<void()>& f) {
  const std::optional<Error> mine = error_of(f);
  if (world.size() == 1) {
    if (mine) throw *mine;
    return;
  }
  const double local[] = {double(mine ? int(mine->code) : 0), mine ? double(std::string_view(mine->what()).size()) : 0};
  const std::vector<double> all = world.gather(local);
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto code = Exit(int(all[2 * rank]));
    if (code == Exit::ok) continue;
    std::string text = rank == world.rank() ? mine->what() : std::string(std::size_t(all[2 * rank + 1]), ' ');
    Transport& transport = world.transport();
    Event(&transport, transport.broadcast(text.data(), Index(text.size()), DType::u8, rank)).host_wait();
    throw Error(code, text);
  }
}

void visit_texts(Communicator& world, std::string text, const std::function<void(const std::string&)>& visit) {
  const double length = double(text.size());
  const std::vector<double> lengths = world.gather({&length, 1});
  Transport& transport = world.transport();
  if (world.rank() != 0) {
    if (!text.empty()) Event(&transport, transport.send(text.data(), Index(text.size()), DType::u8, 0, 0)).host_wait();
    return;
  }
  visit(text);
  for (int rank = 1; rank < world.size(); ++rank) {
    text.resize(std::size_t(lengths[rank]));
    if (!text.empty()) Event(&transport, transport.receive(text.data(), Index(text.size()), DType::u8, rank, 0)).host_wait();
    visit(text);
  }
}

std::vector<std::string> gather_texts(Communicator& world, const std::string& mine) {
  std::vector<std::string> texts;
  visit_texts(world, mine, [&](const std::string& text) { texts.push_back(text); });
  return texts;
}

std::string text_of_first(Communicator& world, const std::string& mine) {
  const double length = double(mine.size());
  std::string text = mine;
  text.resize(std::size_t(world.gather({&length, 1}).front()));
  Transport& transport = world.transport();
  if (world.size() > 1 && !text.empty()) Event(&transport, transport.broadcast(text.data(), Index(text.size()), DType::u8, 0)).host_wait();
  return text;
}

}  // namespace gyr
