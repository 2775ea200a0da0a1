;; SPDX-License-Identifier: MIT OR Apache-2.0 -*- lexical-binding: t -*-
;; Parses records, edits a text in buffers that come and go, and writes all as JSON.
(let ((records (with-temp-buffer
                 (insert-file-contents (car command-line-args-left))
                 (json-parse-buffer)))
      (words (make-hash-table :test 'equal))
      (bytes 0))
  (dotimes (round 8)
    (with-temp-buffer
      (insert-file-contents (cadr command-line-args-left) nil 0 60000)
      (while (re-search-forward "\\b[a-z]+\\b" nil t)
        (push round (gethash (match-string 0) words)))
      (sort-lines nil (point-min) (point-max))))
  (dotimes (_ 2)
    (setq bytes (+ bytes (length (json-serialize records)))))
  (message "%d %d" (hash-table-count words) bytes))
(setq command-line-args-left nil)
