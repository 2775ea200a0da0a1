# SPDX-License-Identifier: MIT OR Apache-2.0
# Groups the words of a text, turns each group round and formats it.
groups = Hash.new { |hash, key| hash[key] = [] }
File.foreach(ARGV[0]).with_index do |line, number|
  line.split.each { |word| groups[word.downcase] << "#{word} in line #{number} of the whole text" }
end
lines = groups.sort.map { |word, seen| "#{word.reverse}: #{seen.map(&:upcase).uniq.join(';')}" }
puts "#{groups.size} #{lines.sum(&:length)}"
