// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/model/chunk.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/device/upload.hpp"
#include "modules/context/neighbour_halo.hpp"
#include "src/engine/model/neighbours_here.hpp"
#include "src/engine/model/source_padding.hpp"

namespace gyr {

namespace {

// True for a pass of generation with layers R, whose neighbours are those of the chunks that end in it.
bool generates(const SequenceLayout& text) { return !text.chunks.begun.empty(); }

// Copies values from the host into a tensor on the device; nothing in a dry run.
template <class V>
void upload(Device& dev, std::span<const V> from, Tensor1<V> to) {
  if (dev.dry_run() || from.empty()) return;
  backend::upload(dev.queue, from.data(), to.data(), Index(from.size_bytes()));
}

// Selects the values of this context-parallel rank from `width` values per token of full sequences.
template <class V>
std::vector<V> local_rows(const SequenceLayout& s, std::span<const V> full, V padding, Index width = 1) {
  if (!s.shared() || full.empty()) return {full.begin(), full.end()};
  ensure(Index(full.size()) == s.batch * s.full_tokens * width, "{} values in {} sequences of {}", full.size(), s.batch, s.full_tokens);
  std::vector<V> mine;
  for (Index b = 0; b < s.batch; ++b)
    for (Index t = 0; t < s.seq_length; ++t)
      for (Index i = 0; i < width; ++i) mine.push_back(s.place(t) < s.full_tokens ? full[(b * s.full_tokens + s.place(t)) * width + i] : padding);
  return mine;
}

}  // namespace

Chunk::Chunk(const ModelConfig& config, Span layers, Parameters& parameters, Parameter* table, int stream_parts, const RecomputeConfig& recompute,
             const OffloadConfig& offload)
    : config_(config), dtype_(parameters.dtype()), first_layer_(layers.first), tensor_ranks_(parameters.coordinates()[Axis::tensor].ranks),
      stream_parts_(stream_parts), recompute_(recompute), offload_(offload), fields_(fields_of(config, 1)), front_fields_(front_fields(config, 1)) {
  const bool first = layers.first == 0, last = layers.last == config.layers();
  const auto trained = [&] { return std::any_of(parameters.all().begin(), parameters.all().end(), [](const auto& p) { return p->trained; }); };
  const auto declared = [&](auto&& declare) {
    parameters.begin_group();
    const Index begin = parameters.groups() - 1;
    declare();
    groups_.push_back({begin, parameters.groups()});
    if (first && !trained()) lowest_ = Index(groups_.size());
  };
  if (first) declared([&] { embedding_ = std::make_unique<Embedding>(config_, parameters), front_ = make_front(config_, parameters, *embedding_); });
  for (Index i = layers.first; i < layers.last; ++i)
    declared(
        [&] { layers_.push_back(layer_type(config_.pattern[i]).make(config_of_layer(config_, i), fmt::format("model.layers.{}", i), parameters)); });
  if (last)
    declared([&] {
      if (first) table = &embedding_->table();
      head_ = config_.objective->head(config_, shares_embedding(config_) ? table : nullptr, parameters);
    });
}

Chunk::Fields::Fields(std::vector<NamedField> fields) : all(std::move(fields)) {
  const auto key_of = []<class V>(const ValueField<V>& f) { return Key<Tensor1<V>>{f.name.text.c_str()}; };
  for (const NamedField& field : all) std::visit([&](const auto& f) { keys.emplace_back(key_of(f)); }, field);
}

std::string Chunk::stream_name(Index layer) const {
  return layer < 0 ? "model.embed_tokens.output" : fmt::format("model.layers.{}.output", first_layer_ + layer);
}

// Positions of full sequences within their documents; empty: one document each. Packed documents keep theirs. With
// bidirectional attention, padding at the end of sequences becomes a separate document.
std::vector<std::int32_t> Chunk::documents_of(const SequenceLayout& s, std::span<const std::int32_t> packed, bool both_ways) {
  if (!packed.empty() || !both_ways || !s.shared() || s.full_tokens == s.ranks * s.seq_length) return {packed.begin(), packed.end()};
  return documents_of_source(s, std::vector<Index>(std::size_t(s.batch), s.full_tokens));
}

// Positions of texts with the given lengths; the padding after each text is a separate document.
std::vector<std::int32_t> Chunk::documents_of_source(const SequenceLayout& s, std::span<const Index> lengths) {
  std::vector<std::int32_t> positions;
  for (Index b = 0; b < s.batch && !lengths.empty(); ++b)
    for (Index t = 0; t < s.full_length(); ++t) positions.push_back(std::int32_t(t < lengths[b] ? t : t - lengths[b]));
  return positions;
}

// Uploads the labels of this rank's rows. If only few rows can have a label, also uploads a list of the labelled rows.
void Chunk::label(Device& dev, Slot& slot, std::span<const Token> labels) const {
  const SequenceLayout& s = slot.text.sequences;
  const Index rows = s.rows(), most = std::min(rows, s.batch * config_.objective->most_labels(s.full_length()));
  const auto of_rows = slot.frame.put(Keys::labels, rows);
  slot.labels = {of_rows};
  upload<Token>(dev, labels, of_rows);
  if (!last() || most == rows) return;
  const auto picked = slot.frame.put(Keys::picked, most), label = slot.frame.put(Keys::picked_labels, most),
             place = slot.frame.put(Keys::places, rows);
  slot.labels = {of_rows, picked, label, place};
  std::vector<Token> row_of(most, -1), label_of(most, ignored_label), place_of(rows, -1);
  Index count = 0;
  for (Index r = 0; r < Index(labels.size()); ++r) {
    if (labels[r] == ignored_label) continue;
    ensure(count < most, "more than {} of {} rows have a label", most, rows);
    row_of[count] = Token(r), label_of[count] = labels[r], place_of[r] = Token(count), ++count;
  }
  upload<Token>(dev, row_of, picked), upload<Token>(dev, label_of, label), upload<Token>(dev, place_of, place);
}

// Uploads the values of the fields that this chunk reads: those of this rank's rows, and those of all sequences.
void Chunk::upload_values(Device& dev, Slot& slot, const Fields& declared, const std::vector<NamedField>& fields, const SequenceLayout& s,
                          const NamedHostValues& from, NamedDeviceValues& to) const {
  const auto upload_field = [&]<class V>(const ValueField<V>& field, const Key<Tensor1<V>>& key) {
    const bool reads = field.reader == ValueReader::embedding ? first() : last() && (slot.tape || field.reader == ValueReader::head);
    if (!reads || field.reader == ValueReader::layers) return;
    const auto there = slot.frame.put(key, field.count(s.batch, s.seq_length));
    to[field.name] = there;
    const std::vector<V>* const given = from.find(field.name);
    const Index count = field.count(s.batch, s.full_length());
    ensure(!given || Index(given->size()) == count, "{} values '{}' instead of {}", given ? given->size() : 0, field.name.text, count);
    if (!given) upload<V>(dev, std::vector<V>(there.extent(0), field.padding), there);
    else upload<V>(dev, field.per_sequence > 0 ? *given : local_rows<V>(s, *given, field.padding, field.per_row), there);
  };
  for (std::size_t i = 0; i < fields.size(); ++i)
    std::visit([&]<class V>(const ValueField<V>& field) { upload_field(field, std::get<Key<Tensor1<V>>>(declared.keys[i])); }, fields[i]);
}

// Tokens of the document of each row, or of its sequence with the past. Those of packed documents end where the next
// one begins.
std::vector<std::int32_t> Chunk::lengths_of_rows(const SequenceLayout& s, const Arriving& arriving) {
  std::vector<std::int32_t> full = arriving.documents;
  const std::vector<std::int32_t> ahead = tokens_ahead(arriving.documents, s.full_length());
  for (std::size_t r = 0; r < full.size(); ++r) full[r] += ahead[r] + 1;
  for (Index b = 0; b < s.batch && arriving.documents.empty(); ++b) {
    const Index read = arriving.lengths.empty() ? s.full_length() : arriving.lengths[b];
    full.insert(full.end(), std::size_t(s.full_length()), std::int32_t(s.past_of(b) + read));
  }
  return local_rows<std::int32_t>(s, full, 1);
}

// Components of the position of each row; without given ones, the position itself.
std::vector<std::int32_t> Chunk::components_of_rows(const SequenceLayout& s, const Arriving& arriving) const {
  const Index count = config_.attention.rotary_sections.count;
  ensure(arriving.components.empty() || Index(arriving.components.size()) == s.batch * s.full_length() * count,
         "{} components of positions in {} sequences of {}", arriving.components.size(), s.batch, s.full_length());
  std::vector<std::int32_t> components = local_rows<std::int32_t>(s, arriving.components, 0, count);
  for (const std::int32_t position : std::span(arriving.text.positions).first(arriving.components.empty() ? arriving.text.positions.size() : 0))
    components.insert(components.end(), std::size_t(count), position);
  return components;
}

// Uploads what RoPE reads besides the position of each row: the length by which dynamic RoPE scales it, or the components
// of the position; and the number of the row in the table that is made from them.
void Chunk::upload_rotation(Device& dev, Slot& slot, const Arriving& arriving) const {
  SequenceLayout& s = arriving.text.sequences;
  const Index count = config_.attention.rotary_sections.count;
  const bool scales = config_.has_dynamic_rope();
  if (!scales && count == 1) return;
  const auto lengths = scales ? slot.frame.put(arriving.keys.lengths, s.rows()) : Tensor1<std::int32_t>();
  const auto values = slot.frame.put(arriving.keys.row_indices, s.rows());
  const auto components = count > 1 ? slot.frame.put(arriving.keys.components, s.rows() * count) : Tensor1<std::int32_t>();
  s.lengths = lengths, s.row_indices = values, s.components = components;
  if (dev.dry_run()) return;
  std::vector<std::int32_t> rows(std::size_t(s.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  if (scales) upload<std::int32_t>(dev, lengths_of_rows(s, arriving), lengths);
  upload<std::int32_t>(dev, rows, values);
  if (count > 1) upload<std::int32_t>(dev, components_of_rows(s, arriving), components);
}

// Uploads the position of each row in its sequence or document; for bidirectional attention also the number of tokens
// after it.
void Chunk::place(Device& dev, Slot& slot, const Arriving& arriving) const {
  Text& text = arriving.text;
  SequenceLayout& s = text.sequences;
  const std::vector<std::int32_t> packed = local_rows<std::int32_t>(s, arriving.documents, 0);
  const auto positions = slot.frame.put(arriving.keys.positions, s.rows());
  if (!dev.dry_run() || !packed.empty()) text.positions = positions_of(s, packed);
  upload<std::int32_t>(dev, text.positions, positions);
  s.positions = positions;
  s.documents = packed.empty() ? Documents() : Documents{positions, text.positions};
  upload_rotation(dev, slot, arriving);
  if (!arriving.both_ways) return;
  const auto ahead = slot.frame.put(arriving.keys.ahead, s.rows());
  if (packed.empty()) return;
  text.ahead = local_rows<std::int32_t>(s, tokens_ahead(arriving.documents, s.full_length()), 0);
  upload<std::int32_t>(dev, text.ahead, ahead);
  s.documents.ahead = ahead, s.documents.host_ahead = text.ahead;
}

// The same for the full sequences with padding, if this rank computes with queries of other context-parallel ranks.
void Chunk::upload_full_positions(Device& dev, Slot& slot, const Arriving& arriving) {
  Text& text = arriving.text;
  SequenceLayout& s = text.sequences;
  const std::span<const std::int32_t> documents = arriving.documents;
  if (!s.computes_for_other_ranks()) return;
  const Index length = s.ranks * s.seq_length;
  const auto put = [&](const Key<Tensor1<std::int32_t>>& key, std::span<const std::int32_t> values, std::vector<std::int32_t>& padded) {
    const auto there = slot.frame.put(key, s.batch * length);
    padded.assign(values.empty() ? 0 : std::size_t(s.batch * length), 0);
    for (Index b = 0; b < s.batch && !values.empty(); ++b)
      std::copy_n(values.begin() + b * s.full_tokens, s.full_tokens, padded.begin() + b * length);
    upload<std::int32_t>(dev, padded, there);
    return there;
  };
  const auto positions = put(arriving.keys.full_positions, documents, text.full_positions);
  s.full_documents = documents.empty() ? Documents() : Documents{positions, text.full_positions};
  if (!arriving.both_ways) return;
  const auto ahead = put(arriving.keys.full_ahead, tokens_ahead(documents, s.full_tokens), text.full_ahead);
  if (!documents.empty()) s.full_documents.ahead = ahead, s.full_documents.host_ahead = text.full_ahead;
}

// Every decoder row sees the full source of its sequence, except padding.
void Chunk::upload_source_ranges(Device& dev, Slot& slot, std::span<const Index> source_lengths) const {
  SequenceLayout& text = slot.text.sequences;
  const SequenceLayout& source = slot.source.sequences;
  const auto begins = slot.frame.put(Keys::visible_begins, text.rows()), ends = slot.frame.put(Keys::visible_ends, text.rows());
  if (source_lengths.empty() && (!source.shared() || source.full_tokens == source.ranks * source.seq_length)) return;
  slot.visible_begins.clear(), slot.visible_ends.clear();
  for (Index b = 0; b < text.batch; ++b)
    for (Index t = 0; t < text.seq_length; ++t) {
      const Index length = source_lengths.empty() ? source.full_length() : source_lengths[b], place = text.place(t);
      slot.visible_begins.push_back(std::int32_t(place)), slot.visible_ends.push_back(std::int32_t(length - 1 - place));
    }
  upload<std::int32_t>(dev, slot.visible_begins, begins);
  upload<std::int32_t>(dev, slot.visible_ends, ends);
  text.visible_encoder_range = {begins, slot.visible_begins, ends, slot.visible_ends};
}

namespace {

// For each row, the counts of visible tokens before and after the index that equals its number in its sequence.
struct VisibleRanges {
  std::vector<std::int32_t>&begins, &ends;

  // Row i sees tokens [first, last). Neither may decrease from row to row.
  void add(Index i, Index first, Index last) const { begins.push_back(std::int32_t(i - first)), ends.push_back(std::int32_t(last - 1 - i)); }
};

// Packed documents: rows of a neighbour see those rows of its chunk that belong to the document of the chunk's last token.
void add_ranges_of_chunk(const VisibleRanges& ranges, const Text& text, const RetrievalConfig& c, const SequenceLayout& neighbours) {
  for (Index n = 0; n < neighbours.batch; ++n) {
    const Index last = n % (neighbours.batch / c.neighbours) * c.chunk + c.chunk - 1;
    const Index first = std::max<Index>(0, c.chunk - 1 - text.positions[std::size_t(last)]);
    for (Index i = 0; i < neighbours.seq_length; ++i) ranges.add(i, first, c.chunk);
  }
}

}  // namespace

// Row i of the queries of a chunk sees the tokens of each of its k neighbours, without padding. With packed documents, it sees none if its
// document begins after the chunk, and the ranges of the rows of all neighbours follow those of the queries.
void Chunk::upload_neighbour_ranges(Device& dev, Slot& slot, std::span<const Index> lengths) const {
  SequenceLayout& text = slot.text.sequences;
  if (text.seq_length == 1 && !text.chunks.lengths.empty()) return;  // generation, in which a token sees cached neighbours
  const RetrievalConfig& c = config_.retrieval;
  SequenceLayout& source = slot.source.sequences;
  const bool packed = text.documents.packed();
  const Index queries = generates(text) ? source.batch * c.chunk : c.neighbours * (text.rows() + chunks_before_blocks(text, c.chunk) * (c.chunk - 1));
  const Index rows = queries + (generates(text) ? 0 : source.rows());
  const auto begins = slot.frame.put(Keys::visible_begins, rows), ends = slot.frame.put(Keys::visible_ends, rows);
  if (lengths.empty() && !packed) return;
  slot.visible_begins.clear(), slot.visible_ends.clear();
  const VisibleRanges ranges{slot.visible_begins, slot.visible_ends};
  const auto length_of = [&](Index neighbour) { return lengths.empty() ? source.seq_length : lengths[std::size_t(neighbour)]; };
  for (Index n = 0; generates(text) && n < source.batch; ++n)
    for (Index i = 0; i < c.chunk; ++i) ranges.add(i, 0, length_of(n));
  if (!generates(text))
    for (const QueriedNeighbour& n : queried_neighbours(text, c)) {
      const Index length = length_of(n.index);
      for (Index i = 0; i < n.rows; ++i) ranges.add(i, !packed || n.seen_by(i, slot.text.positions) ? 0 : length, length);
    }
  ensure(Index(slot.visible_begins.size()) == queries, "{} rows of queries instead of {}", slot.visible_begins.size(), queries);
  if (packed) add_ranges_of_chunk(ranges, slot.text, c, source);
  const Index used = Index(slot.visible_begins.size());
  upload<std::int32_t>(dev, slot.visible_begins, gyr::rows(begins, 0, used));
  upload<std::int32_t>(dev, slot.visible_ends, gyr::rows(ends, 0, used));
  const Documents visible{gyr::rows(begins, 0, used), slot.visible_begins, gyr::rows(ends, 0, used), slot.visible_ends};
  text.visible_encoder_range = visible.of_rows(0, queries);
  source.visible_encoder_range = packed ? visible.of_rows(queries, source.rows()) : Documents();
}

void Chunk::upload_inputs(Device& dev, Slot& slot, const Arriving& arriving, std::span<const Token> tokens) const {
  arriving.text.tokens = slot.frame.put(arriving.keys.tokens, arriving.text.sequences.rows());
  if (first()) upload<Token>(dev, tokens, arriving.text.tokens);
  place(dev, slot, arriving);
}

// Image tokens of the text, which have no row in the table of tokens, become -1: their embedding is 0, without a gradient.
std::vector<Token> Chunk::tokens_to_embed(std::vector<Token> tokens) const {
  if (reads_images(config_)) std::replace(tokens.begin(), tokens.end(), Token(config_.vision.image_token), Token(-1));
  return tokens;
}

void Chunk::check_without_images(std::span<const Token> tokens) const {
  const Index found = std::count(tokens.begin(), tokens.end(), Token(config_.vision.image_token));
  require(found == 0, Exit::data, "a micro-batch has {} image tokens ({}) and no images; give its images, or leave the tokens out", found,
          config_.vision.image_token);
}

// Uploads which row of the images each image token of the text stands for, and the inverse. The k-th image token of a sequence
// stands for the k-th of the rows of its images that enter the text. Only the chunk with the end of the tower reads them.
void Chunk::upload_image_rows(Device& dev, Slot& slot, std::span<const Token> tokens, std::span<const Index> lengths) const {
  const Index end = layers_of_encoder(config_) - first_layer_;
  if (end < 0 || end >= Index(layers_.size())) return;
  const VisionConfig& v = config_.vision;
  SequenceLayout &text = slot.text.sequences, &images = slot.source.sequences;
  const auto of_text = slot.frame.put(Keys::image_rows, text.rows()), of_images = slot.frame.put(Keys::rows_of_images, images.rows());
  text.spliced = of_text, images.spliced = of_images;
  if (dev.dry_run()) return;
  std::vector<Token> row_of(std::size_t(text.rows()), -1), place_of(std::size_t(images.rows()), -1);
  const Index room = images.rows() / text.batch;
  for (Index b = 0; b < text.batch; ++b) {
    const Index count = (lengths.empty() ? room : lengths[std::size_t(b)]) / v.rows();
    Index found = 0;
    for (Index r = b * text.seq_length; r < (b + 1) * text.seq_length && !tokens.empty(); ++r) {
      if (tokens[std::size_t(r)] != v.image_token) continue;
      const Index row = b * room + found / v.rows_in_text() * v.rows() + v.first_row() + found % v.rows_in_text();
      if (++found > count * v.rows_in_text()) continue;
      row_of[std::size_t(r)] = Token(row), place_of[std::size_t(row)] = Token(r);
    }
    require(found == count * v.rows_in_text(), Exit::data,
            "a sequence has {} image tokens ({}) and {} images of {} rows each: both numbers of rows must be equal; expand the image tokens again",
            found, v.image_token, count, v.rows_in_text());
  }
  upload<Token>(dev, row_of, of_text), upload<Token>(dev, place_of, of_images);
}

// Uploads the input of the encoder, padded to the length of its layout.
void Chunk::upload_source(Device& dev, Slot& slot, const EncoderInput& given, std::span<const Token> tokens) const {
  const SequenceLayout source = slot.source.sequences;
  const std::vector<NamedField> fields = front_fields(config_, source.full_length());
  const SequenceLayout& text = slot.text.sequences;
  if (reads_images(config_)) {
    const EncoderInput input = padded(given, text.batch, source.rows() / text.batch, fields);
    upload_inputs(dev, slot, {slot.source, source_keys, true}, {});
    upload_values(dev, slot, front_fields_, fields, source, input.values, slot.source.values);
    return upload_image_rows(dev, slot, tokens, input.lengths);
  }
  const EncoderInput input = !reads_neighbours(config_) ? padded(given, source.batch, source.full_length(), fields)
                             : generates(text)          ? given
                                                        : neighbours_here(text, config_.retrieval, given);
  const Arriving encoded{slot.source, source_keys, true,
                         input.lengths.empty() ? documents_of(source, {}, true) : documents_of_source(source, input.lengths)};
  upload_inputs(dev, slot, encoded, local_rows<Token>(source, input.tokens, 0));
  upload_values(dev, slot, front_fields_, fields, source, input.values, slot.source.values);
  upload_full_positions(dev, slot, encoded);
  if (reads_neighbours(config_)) upload_neighbour_ranges(dev, slot, given.lengths);
  else upload_source_ranges(dev, slot, input.lengths);
}

Bundle Chunk::begin(Device& dev, Slot& slot, const SequenceLayout& sequences, const MicroBatch& batch, const SequenceLayout& source) const {
  ensure(slot.frame.empty(), "the slot still holds a micro-batch");
  slot.text = {sequences}, slot.source = {source};
  const bool both_ways = !config_.attention.causal;
  const std::vector<Token>* const components = batch.values.find(rotary_components);
  const Arriving text{slot.text,     text_keys,
                      both_ways,     documents_of(sequences, batch.positions, both_ways),
                      batch.lengths, components ? std::span<const Token>(*components) : std::span<const Token>()};
  upload_inputs(dev, slot, text, tokens_to_embed(local_rows<Token>(sequences, batch.tokens, 0)));
  label(dev, slot, last() ? local_rows<Token>(sequences, batch.labels, ignored_label) : std::vector<Token>());
  upload_values(dev, slot, fields_, fields_of(config_, sequences.full_length()), sequences, batch.values, slot.labels.values);
  upload_full_positions(dev, slot, text);
  if (source.rows() > 0) upload_source(dev, slot, batch.source, batch.tokens);
  else if (reads_images(config_)) check_without_images(batch.tokens);
  return put_input(slot);
}

void Chunk::draw(Device& dev, Slot& slot, const DrawnAt& now) const {
  slot.drawn_at = {};
  if (!draws_dropout(config_)) return;
  const auto there = slot.frame.put(Keys::drawn_at, Index(1));
  upload<DrawnAt>(dev, {&now, 1}, there);
  slot.drawn_at = there;
}

Bundle Chunk::begin(Device& dev, Slot& slot, const GivenText& text, const GivenText& source) const {
  slot.clear();
  slot.text = {text.sequences}, slot.source = {source.sequences}, slot.labels = {};
  upload_inputs(dev, slot, {slot.text, text_keys, !config_.attention.causal}, text.tokens);
  if (reads_neighbours(config_) && source.sequences.rows() > 0)
    upload_source(dev, slot,
                  {Index(source.tokens.size()), {source.tokens.begin(), source.tokens.end()}, {source.lengths.begin(), source.lengths.end()}}, {});
  else if (source.sequences.rows() > 0) upload_inputs(dev, slot, {slot.source, source_keys, true}, source.tokens);
  return put_input(slot);
}

Bundle Chunk::put_input(Slot& slot) const {
  slot.stream = first() ? Bundle() : put(slot, &BundleTensor::value, 0);
  return slot.stream;
}

std::vector<BundleShape> Chunk::shapes(const Slot& slot, Index layer) const {
  const auto rows = [&](const Text& text) { return StreamRows{text.sequences.rows(), stream_parts_}.rows_per_part(); };
  return bundle_shapes(config_, dtype_, {rows(slot.text), rows(slot.source), tensor_ranks_, rows_before(slot)}, first_layer_ + layer);
}

Index Chunk::rows_before(const Slot& slot) const {
  if (!reads_neighbours(config_)) return 0;
  return chunks_before_blocks(slot.text.sequences, config_.retrieval.chunk) * config_.retrieval.neighbours * config_.retrieval.neighbour_length();
}

Bundle Chunk::put(Slot& slot, Key<AnyTensor2> BundleTensor::*key, Index layer) const {
  Bundle bundle;
  for (const BundleShape& s : shapes(slot, layer)) bundle[*s.kind] = slot.frame.put(s.kind->*key, s.dtype, s.rows, s.columns);
  return bundle;
}

Bundle Chunk::received(const Slot& slot, Index layer, const Bundle& from) const {
  Bundle bundle;
  for (const BundleShape& s : shapes(slot, layer)) bundle[*s.kind] = from.find(*s.kind);
  return bundle;
}

std::vector<BundleShape> Chunk::missing(const Slot& slot, Index layer, const Bundle& from) const {
  std::vector<BundleShape> shapes = this->shapes(slot, layer);
  std::erase_if(shapes, [&](const BundleShape& s) { return from.find(*s.kind).rows > 0; });
  return shapes;
}

void Chunk::embed(Pass& a, Slot& slot) {
  Frame& frame = frame_of(slot, -1);
  slot.stream.x() = embedding_->forward(a, frame, slot.text.tokens, slot.labels.values);
  if (a.source) slot.stream[encoder_stream] = front_->forward(*a.source, frame_of_source(frame), {slot.source.tokens, slot.source.values});
  if (const RelativeBias* bias = embedding_->relative_bias()) slot.stream[position_bias] = bias->forward(a, frame);
}

Pass Chunk::pass_of(const Pass& a, Index layer, const Bundle& stream, const Bundle& gradient) const {
  ensure(a.source || !in_encoder(layer), "layer {} reads a source, and there is none", first_layer_ + layer);
  Pass pass = in_encoder(layer) ? *a.source : a;
  pass.bias = {stream.find(position_bias), gradient.find(position_bias)};
  if (!in_encoder(layer)) pass.encoded = {stream.find(encoder_stream), gradient.find(encoder_stream)};
  pass.encoded_before = {stream.find(neighbours_before), gradient.find(neighbours_before)};
  return pass;
}

Bundle Chunk::part_for(Index layer, const Bundle& all) const {
  if (!in_encoder(layer)) return all;
  Bundle part(all.find(encoder_stream));
  part[position_bias] = all.find(position_bias);
  return part;
}

void Chunk::take_back(Index layer, const Bundle& part, Bundle& all) const {
  if (in_encoder(layer)) all[encoder_stream] = part.x();
  else all = part;
}

void Chunk::run_and_keep(Pass& a, Slot& slot, Index part) {
  if (part == 0) slot.inputs.clear();
  const Index layer = part - Index(first());
  if (layer < 0) {
    embed(a, slot);
    return a.show(Observed::activation, stream_name(layer), slot.stream.x());
  }
  slot.inputs.push_back(slot.stream);
  Pass pass = pass_of(a, layer, slot.stream, {});
  Bundle mine = part_for(layer, slot.stream);
  layers_[layer]->forward(pass, frame_of(slot, layer), mine);
  if (const Recompute policy = recompute_of(layer)) frame_of(slot, layer).drop(*policy, mine.x().data);
  if (slot.offload) offload_layer(a, slot, layer, mine.x().data);
  pass.show(Observed::activation, stream_name(layer), mine.x());
  take_back(layer, mine, slot.stream);
  slot.stream = received(slot, layer + 1, slot.stream);
}

// Forward only: the memory of a layer is reused for the next one. The output is copied to the input's place, so that
// the stream does not move. A tensor that this layer adds gets a place before the layer runs.
void Chunk::run(Pass& a, Slot& slot, Index part) {
  const Index layer = part - Index(first());
  if (layer < 0) return embed(a, slot);
  if (in_encoder(layer) && !a.source) return;
  Pass pass = pass_of(a, layer, slot.stream, {});
  Bundle out = part_for(layer, slot.stream), place = out;
  for (const BundleShape& s : missing(slot, layer + 1, slot.stream)) place[*s.kind] = slot.frame.put(s.kind->value, s.dtype, s.rows, s.columns);
  layers_[layer]->forward(pass, frame_of(slot, layer), out);
  place.each([&](const BundleTensor& kind, const AnyTensor2& to) {
    if (const AnyTensor2 from = out.find(kind); from.data != to.data) convert(a.dev, from, to);
  });
  if (pass.hook) pass.show(Observed::activation, stream_name(layer), place.x());
  frame_of(slot, layer).clear();
  take_back(layer, place, slot.stream);
  slot.stream = received(slot, layer + 1, slot.stream);
}

void Chunk::run_through(Pass& a, Slot& slot) {
  for (Index part = 0; part < Index(first()) + Index(layers_.size()); ++part) run(a, slot, part);
}

void Chunk::forward(Pass& a, Slot& slot, const Span& parts, Tensor1<const double> scales, Tensor1<double> loss, ObjectiveScores* scores) {
  for (Index part = parts.first; part < parts.last; ++part)
    if (last() && part == Index(groups_.size()) - 1) score(a, slot, scales, loss, scores);
    else scales.extent(0) == 0 ? run(a, slot, part) : run_and_keep(a, slot, part);
}

void Chunk::score(Pass& a, Slot& slot, Tensor1<const double> scales, Tensor1<double> loss, ObjectiveScores* scores) {
  const AnyTensor2 x = slot.stream.x();
  if (scales.extent(0) == 0) {
    head_->loss(a, head_frame(slot), x, slot.labels, loss, scores);
  } else {
    head_->loss_and_gradient(a, head_frame(slot), x, slot.labels, scales, loss);
    slot.gradient = put(slot, &BundleTensor::gradient, Index(layers_.size()));
    head_->backward(a, head_frame(slot), slot.gradient.x());
    slot.gradient.each([&](const BundleTensor& kind, const AnyTensor2& gradient) {
      if (&kind != &residual_stream) fill(a.dev, gradient.flat(), 0);
    });
    head_frame(slot).release(Phase::weight_gradients);
  }
}

// If the last layer of this chunk is in the encoder, the chunk's output is the source.
Bundle Chunk::begin_backward(Slot& slot) const {
  if (last()) return slot.gradient;
  slot.frame.release(slot.stream.x().data);
  if (!layers_.empty() && in_encoder(Index(layers_.size()) - 1)) slot.frame.release(slot.stream.find(encoder_stream).data);
  slot.gradient = put(slot, &BundleTensor::gradient, Index(layers_.size()));
  return slot.gradient;
}

Layer* Chunk::layer_of(Index part) const {
  const Index layer = part - Index(first());
  return layer >= 0 && layer < Index(layers_.size()) ? layers_[layer].get() : nullptr;
}

void Chunk::backward(Pass& a, Slot& slot, const Span& parts, MatrixGradients when) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    backward_part(a, slot, part, when);
    slot.frame.nested(int(part)).release(when == MatrixGradients::later ? Phase::input_gradients : Phase::weight_gradients);
  }
}

void Chunk::backward_weights(Pass& a, Slot& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    if (Layer* layer = layer_of(part)) {
      const Index number = part - Index(first());
      Pass pass = pass_of(a, number, slot.inputs[number], slot.gradient);
      layer->backward_weights(pass, slot.frame.nested(int(part)));
    }
    slot.frame.nested(int(part)).release(Phase::weight_gradients);
  }
}

bool Chunk::offloads(Index layer) const {
  const Index kept = last() ? 2 : 0, layers = Index(layers_.size());
  return offload_.on && layer >= 0 && layer < layers - kept && part_of(layer) >= lowest_ && !read_later(layer);
}

// Offloads the input and the saved activations of a layer, but not its output, which is the input of the next layer.
void Chunk::offload_layer(Pass& a, Slot& slot, Index layer, const void* output) {
  if (offloads(layer)) {
    OffloadBatch offload_batch;
    offload_batch.load(slot.frame, part_for(layer, slot.inputs[layer]).x().data);
    offload_batch.load(frame_of(slot, layer), offload_.alpha, output);
    slot.offload->out(a.dev, layer, std::move(offload_batch));
  }
  if (offloads(layer - 1)) slot.offload->leave(layer - 1);
  if (layer + 1 == Index(layers_.size()) && offloads(layer)) slot.offload->leave(layer);
}

// Copies the activations of a layer back from the host. Returns true if some of them have to be recomputed.
bool Chunk::prefetch_layer(Pass& a, Slot& slot, Index layer) {
  if (layer + 1 == Index(layers_.size()) && offloads(layer)) slot.offload->back(a.dev, layer);
  if (offloads(layer - 1)) slot.offload->back(a.dev, layer - 1);
  if (!offloads(layer)) return false;
  const OffloadBatch offload_batch = slot.offload->arrive(layer);
  Frame& frame = frame_of(slot, layer);
  offload_batch.restore(frame);
  AnyTensor2& input = in_encoder(layer) ? slot.inputs[layer][encoder_stream] : slot.inputs[layer].x();
  input.data = offload_batch.moved(input.data);
  return offload_batch.needs_forward();
}

// Recomputes the activations that the layer has dropped (activation checkpointing). Hooks are not called again.
void Chunk::recompute_forward(const Pass& a, Slot& slot, Index layer) {
  Pass again = pass_of(a, layer, slot.inputs[layer], {});
  again.hook = nullptr;
  Bundle stream = part_for(layer, slot.inputs[layer]);
  frame_of(slot, layer).again();
  layers_[layer]->forward(again, frame_of(slot, layer), stream);
}

// The backward of the head has already run with its forward. The gradient of a tensor that no layer after this one reads
// begins as zero.
void Chunk::backward_part(Pass& a, Slot& slot, Index part, MatrixGradients when) {
  const Index layer = part - Index(first());
  if (layer == Index(layers_.size())) return;
  if (layer < 0) return backward_embedding(a, slot);
  for (const BundleShape& s : missing(slot, layer, slot.gradient)) {
    slot.gradient[*s.kind] = slot.frame.put(s.kind->gradient, s.dtype, s.rows, s.columns);
    fill(a.dev, slot.gradient.find(*s.kind).flat(), 0);
  }
  const bool in_part = slot.offload && prefetch_layer(a, slot, layer);
  Pass pass = pass_of(a, layer, slot.inputs[layer], slot.gradient);
  Bundle gradient = part_for(layer, slot.gradient);
  pass.show(Observed::gradient, stream_name(layer), gradient.x());
  if (in_part || recompute_of(layer)) recompute_forward(a, slot, layer);
  layers_[layer]->backward(pass, frame_of(slot, layer), gradient, when);
  slot.gradient = received(slot, layer, slot.gradient);
}

void Chunk::backward_embedding(Pass& a, Slot& slot) {
  Frame& frame = frame_of(slot, -1);
  a.show(Observed::gradient, stream_name(-1), slot.gradient.x());
  embedding_->backward(a, frame, slot.gradient.x());
  if (a.source) front_->backward(*a.source, frame_of_source(frame), slot.gradient.find(encoder_stream));
  if (const RelativeBias* bias = embedding_->relative_bias()) bias->backward(a, slot.gradient.find(position_bias));
}

}  // namespace gyr
